#pragma once
// Another store with all keys under "PREFIX/": so that groups, generations and users of one table do not meet.
#include <memory>
#include <string>

#include "tutti/store/store.h"

namespace tutti {

// Threads: as the store underneath. num_keys() counts the whole table.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::unique_ptr<Store> store)
      : prefix_(std::move(prefix)), store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Deadline deadline) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override;
  Result<CompareSet> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                 const std::string& desired) override;
  Status wait(const std::vector<std::string>& keys, Deadline deadline) override;
  Result<bool> check(const std::vector<std::string>& keys) override;
  Result<bool> remove(const std::string& key) override;
  Result<std::int64_t> num_keys() override;
  Status append(const std::string& key, const std::string& value) override;
  Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  Status multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  Status push(const std::string& key, const std::string& value) override;
  Result<std::string> pop(const std::string& key, Deadline deadline) override;
  Result<std::int64_t> queue_length(const std::string& key) override;
  Status barrier(const std::string& key, int rank, int size, Deadline deadline, const Waiting& waiting = {}) override;
  Result<std::vector<std::string>> gather_all(const std::string& key, int rank, int size, const std::string& value,
                                              Deadline deadline, const Waiting& waiting = {}) override;
  void set_call_timeout(Duration timeout) override { store_->set_call_timeout(timeout); }
  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;

  // A key as the store underneath knows it.
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }

 private:
  std::vector<std::string> full(const std::vector<std::string>& keys) const;

  std::string prefix_;
  std::unique_ptr<Store> store_;
};

}  // namespace tutti
