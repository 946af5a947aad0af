#include "tutti/store/memory_store.h"

#include "tutti/store/request.h"
#include "tutti/store/shared_table.h"

namespace tutti {

MemoryStore::MemoryStore() : MemoryStore(std::make_shared<store::SharedTable>()) {}
MemoryStore::MemoryStore(std::shared_ptr<store::SharedTable> table) : table_(std::move(table)) {}

Result<std::unique_ptr<Store>> MemoryStore::clone(Deadline) { return std::unique_ptr<Store>(new MemoryStore(table_)); }

Result<store::Reply> MemoryStore::call(const store::Request& request, Deadline deadline, const Waiting& waiting) {
  return table_->call(request, deadline, waiting, kReportEvery);
}

}  // namespace tutti
