#include "tutti/comm/backends/gloo/gloo_store.h"

#include <stdexcept>

namespace tutti::comm::gloo_engine {
namespace {

void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().detail);
}

}  // namespace

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  require(store_.set(prefix_ + key, std::string(data.begin(), data.end())));
}

std::vector<char> GlooStore::get(const std::string& key) {
  const auto value = store_.get(prefix_ + key, deadline_);
  require(value.status());
  return {value->begin(), value->end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) { wait(keys, deadline_); }
void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  wait(keys, deadline_.at_most(timeout));
}

void GlooStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  std::vector<std::string> full;
  for (const auto& key : keys) full.push_back(prefix_ + key);
  require(store_.wait(full, deadline));
}

}  // namespace tutti::comm::gloo_engine
