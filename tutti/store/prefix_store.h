#pragma once
// Another store with all keys under "PREFIX/": so that groups, generations and users of one table do not collide.
#include <memory>
#include <string>
#include <utility>

#include "tutti/store/request.h"
#include "tutti/store/store.h"

namespace tutti {

// Threads: as the store underneath. num_keys() counts the whole table.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::unique_ptr<Store> store) : prefix_(std::move(prefix)), store_(std::move(store)) {
    set_call_timeout(store_->call_timeout());
  }

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override {
    auto other = std::make_unique<PrefixStore>(prefix_, TUTTI_TRY(store_->clone(deadline)));
    other->set_call_timeout(call_timeout());
    return std::unique_ptr<Store>(std::move(other));
  }

  // A key as the store underneath knows it.
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }

 private:
  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override {
    store::Request prefixed = request;
    for (std::string& key : prefixed.keys) key = full(key);
    return store_->run(prefixed, &deadline, waiting);
  }

  const std::string prefix_;
  const std::unique_ptr<Store> store_;
};

}  // namespace tutti
