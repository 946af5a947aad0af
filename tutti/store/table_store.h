#pragma once
// A Store whose calls are Requests to a Table somewhere: in this process, behind a socket, in a file. What remains for
// each is to carry a request there and wait for the reply.
#include <utility>

#include "tutti/store/request.h"
#include "tutti/store/store.h"

namespace tutti {

class TableStore : public Store {
 public:
  Status set(const std::string& key, const std::string& value) final;
  Result<std::string> get(const std::string& key, Deadline deadline) final;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) final;
  Result<CompareSet> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                 const std::string& desired) final;
  Status wait(const std::vector<std::string>& keys, Deadline deadline) final;
  Result<bool> check(const std::vector<std::string>& keys) final;
  Result<bool> remove(const std::string& key) final;
  Result<std::int64_t> num_keys() final;
  Status append(const std::string& key, const std::string& value) final;
  Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys, Deadline deadline) final;
  Status multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) final;
  Status push(const std::string& key, const std::string& value) final;
  Result<std::string> pop(const std::string& key, Deadline deadline) final;
  Result<std::int64_t> queue_length(const std::string& key) final;
  Status barrier(const std::string& key, int rank, int size, Deadline deadline, const Waiting& waiting = {}) final;
  Result<std::vector<std::string>> gather_all(const std::string& key, int rank, int size, const std::string& value,
                                              Deadline deadline, const Waiting& waiting = {}) final;

  void set_call_timeout(Duration timeout) final { call_timeout_ = timeout; }
  Duration call_timeout() const { return call_timeout_; }

 protected:
  // Carries out one checked request. On the deadline: timeout_error(), and the request no longer waits anywhere.
  // `waiting` (may be empty) is called about every kReportEvery seconds of a barrier or gather_all.
  virtual Result<Reply> call(const StoreRequest& request, Deadline deadline, const Waiting& waiting) = 0;

  static constexpr double kReportEvery = 5;

 private:
  Result<Reply> run(const StoreRequest& request, const Deadline* deadline = nullptr, const Waiting& waiting = {});

  Duration call_timeout_ = std::chrono::minutes(5);
};

}  // namespace tutti
