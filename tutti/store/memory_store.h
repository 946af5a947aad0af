#pragma once
// A Store in the memory of this process: for a world of one, for ranks that are threads, and for the process that also
// serves the table to others (StoreServer::local()).
#include <memory>

#include "tutti/store/table_store.h"

namespace tutti {

class SharedTable;

// Threads: any number, at once.
class MemoryStore final : public TableStore {
 public:
  MemoryStore();  // an empty table of its own
  explicit MemoryStore(std::shared_ptr<SharedTable> table);

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;  // the same table

 private:
  Result<Reply> call(const StoreRequest& request, Deadline deadline, const Waiting& waiting) override;

  std::shared_ptr<SharedTable> table_;
};

}  // namespace tutti
