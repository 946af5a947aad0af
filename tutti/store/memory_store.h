#pragma once
// A Store in the memory of this process: for a world of one, for ranks that are threads, and for the process that also
// serves the table to others (StoreServer::local()). Its handles share a SharedTable, and so does the server.
#include <memory>

#include "tutti/store/store.h"

namespace tutti {

namespace store {
class SharedTable;
}  // namespace store

// Threads: any number, at once.
class MemoryStore final : public Store {
 public:
  MemoryStore();  // an empty table of its own
  explicit MemoryStore(std::shared_ptr<store::SharedTable> table);

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;  // the same table

 private:
  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override;

  std::shared_ptr<store::SharedTable> table_;
};

}  // namespace tutti
