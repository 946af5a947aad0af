#pragma once
// Adapts the job's Store to the interface of Gloo's rendezvous, which throws on failure.
#include <gloo/rendezvous/store.h>

#include <string>
#include <vector>

#include "tutti/store/store.h"

namespace tutti::comm::gloo_engine {

class GlooStore final : public ::gloo::rendezvous::Store {
 public:
  // `prefix` is put before every key.
  GlooStore(tutti::Store& store, std::string prefix, Deadline deadline)
      : store_(store), prefix_(std::move(prefix)), deadline_(deadline) {}
  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  void wait(const std::vector<std::string>& keys, Deadline deadline);

  tutti::Store& store_;
  const std::string prefix_;
  const Deadline deadline_;
};

}  // namespace tutti::comm::gloo_engine
