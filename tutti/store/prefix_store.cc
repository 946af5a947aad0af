#include "tutti/store/prefix_store.h"

namespace tutti {

std::vector<std::string> PrefixStore::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  for (const auto& key : keys) result.push_back(full(key));
  return result;
}

Status PrefixStore::set(const std::string& key, const std::string& value) { return store_->set(full(key), value); }
Result<std::string> PrefixStore::get(const std::string& key, Deadline deadline) {
  return store_->get(full(key), deadline);
}
Result<std::int64_t> PrefixStore::add(const std::string& key, std::int64_t amount) {
  return store_->add(full(key), amount);
}
Result<CompareSet> PrefixStore::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                            const std::string& desired) {
  return store_->compare_set(full(key), expected, desired);
}
Status PrefixStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  return store_->wait(full(keys), deadline);
}
Result<bool> PrefixStore::check(const std::vector<std::string>& keys) { return store_->check(full(keys)); }
Result<bool> PrefixStore::remove(const std::string& key) { return store_->remove(full(key)); }
Result<std::int64_t> PrefixStore::num_keys() { return store_->num_keys(); }
Status PrefixStore::append(const std::string& key, const std::string& value) {
  return store_->append(full(key), value);
}
Result<std::vector<std::string>> PrefixStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return store_->multi_get(full(keys), deadline);
}
Status PrefixStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  return store_->multi_set(full(keys), values);
}
Status PrefixStore::push(const std::string& key, const std::string& value) { return store_->push(full(key), value); }
Result<std::string> PrefixStore::pop(const std::string& key, Deadline deadline) {
  return store_->pop(full(key), deadline);
}
Result<std::int64_t> PrefixStore::queue_length(const std::string& key) { return store_->queue_length(full(key)); }
Status PrefixStore::barrier(const std::string& key, int rank, int size, Deadline deadline, const Waiting& waiting) {
  return store_->barrier(full(key), rank, size, deadline, waiting);
}
Result<std::vector<std::string>> PrefixStore::gather_all(const std::string& key, int rank, int size,
                                                         const std::string& value, Deadline deadline,
                                                         const Waiting& waiting) {
  return store_->gather_all(full(key), rank, size, value, deadline, waiting);
}
Result<std::unique_ptr<Store>> PrefixStore::clone(Deadline deadline) {
  return std::unique_ptr<Store>(new PrefixStore(prefix_, TUTTI_TRY(store_->clone(deadline))));
}

}  // namespace tutti
