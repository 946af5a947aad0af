#include "tutti/store/memory_store.h"


namespace tutti {

MemoryStore::MemoryStore() : MemoryStore(std::make_shared<SharedTable>()) {}
MemoryStore::MemoryStore(std::shared_ptr<SharedTable> table) : table_(std::move(table)) {}

Result<std::unique_ptr<Store>> MemoryStore::clone(Deadline) { return std::unique_ptr<Store>(new MemoryStore(table_)); }

Result<Reply> MemoryStore::call(const StoreRequest& request, Deadline deadline, const Waiting& waiting) {
  return table_->call(request, deadline, waiting, kReportEvery);
}

}  // namespace tutti
