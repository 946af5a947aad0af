#pragma once
// A Store is a small shared table of keys and values through which the ranks of a job find each other and agree.
// Values are bytes. Nothing polls: a wait is a wait list at the server.
//
// A new kind of store implements two functions, clone() and call(): every verb is a store::Request (request.h) that is
// carried to a table somewhere (in this process, behind a socket, in a file, in etcd), and a Reply that comes back.
//
// Threads: a Store may be called from any thread; calls of one TcpStore object are made one after another (clone()
// gives a second connection). Limits (kLimit): key 4 KiB, value 8 MiB, 128 Ki keys, 256 MiB in all.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"

namespace tutti {

namespace store {
struct Request;
struct Reply;
}  // namespace store

struct CompareSet {
  bool stored = false;               // whether `desired` was stored
  std::optional<std::string> value;  // what the key holds now; none: the key does not exist
};

class Store {
 public:
  // Called while a wait lasts, about every 5 s: the missing ranks, and the seconds waited.
  using Waiting = std::function<void(std::span<const int> missing, double waited)>;

  virtual ~Store() = default;

  // The verbs. No store overrides them; they are virtual because backend libraries (comm/backends/), which resolve no
  // symbols of the program, call them.
  virtual Status set(const std::string& key, const std::string& value);
  // Waits for the key. A kTimeout names the key and the limit.
  virtual Result<std::string> get(const std::string& key, Deadline deadline);
  // Adds to a decimal number (an absent key counts as 0); the new value.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  // Stores `desired` if the key holds `expected` (none: if it does not exist).
  virtual Result<CompareSet> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                         const std::string& desired);
  // Waits until all keys exist; a kTimeout lists the keys that are missing.
  virtual Status wait(const std::vector<std::string>& keys, Deadline deadline);
  // Whether all keys exist now.
  virtual Result<bool> check(const std::vector<std::string>& keys);
  virtual Result<bool> remove(const std::string& key);  // whether it existed
  virtual Result<std::int64_t> num_keys();
  virtual Status append(const std::string& key, const std::string& value);
  virtual Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys, Deadline deadline);
  // Up to 100 keys: all or none of them, and no reader sees some without the others. Beyond that the store may set them
  // in several steps, and an error may leave the first ones set.
  virtual Status multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  // A queue under a key: first in, first out; pop waits.
  virtual Status push(const std::string& key, const std::string& value);
  virtual Result<std::string> pop(const std::string& key, Deadline deadline);
  virtual Result<std::int64_t> queue_length(const std::string& key);
  // Waits until `size` ranks have entered; one round trip. A kTimeout names the ranks that are missing; a rank that
  // enters twice is kMismatch for the second. The key may be used again after all ranks have left.
  virtual Status barrier(const std::string& key, int rank, int size, Deadline deadline, const Waiting& waiting = {});
  // The values of all ranks, by rank; one round trip. Errors as barrier().
  virtual Result<std::vector<std::string>> gather_all(const std::string& key, int rank, int size,
                                                      const std::string& value, Deadline deadline,
                                                      const Waiting& waiting = {});

  // The limit of calls that have no deadline of their own; 5 min unless set. Before other threads call.
  void set_call_timeout(Duration timeout) { call_timeout_ = timeout; }
  Duration call_timeout() const { return call_timeout_; }

  // Another handle to the same table that can wait while this one is busy.
  virtual Result<std::unique_ptr<Store>> clone(Deadline deadline) = 0;

  // What all verbs above do: checks the request, carries it out, and names the call in an error. null: the limit of
  // calls without a deadline.
  Result<store::Reply> run(const store::Request& request, const Deadline* deadline = nullptr,
                           const Waiting& waiting = {});

 protected:
  // Carries out one checked request. On the deadline: timeout_error(), and the request no longer waits anywhere.
  // `waiting` (may be empty) is called about every kReportEvery seconds of a barrier or gather_all.
  virtual Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) = 0;

  static constexpr double kReportEvery = 5;

 private:
  Duration call_timeout_ = std::chrono::minutes(5);
};

}  // namespace tutti
