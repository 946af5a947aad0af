#pragma once
// A Store is a small shared table of keys and values through which the ranks of a job find each other and agree.
// Values are bytes. Nothing polls: a wait is a wait list at the server.
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

struct CompareSet {
  bool stored = false;               // whether `desired` was stored
  std::optional<std::string> value;  // what the key holds now; none: the key does not exist
};

class Store {
 public:
  // Called while a wait lasts, about every 5 s: the missing ranks, and the seconds waited.
  using Waiting = std::function<void(std::span<const int> missing, double waited)>;

  virtual ~Store() = default;

  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. A kTimeout names the key and the limit.
  virtual Result<std::string> get(const std::string& key, Deadline deadline) = 0;
  // Adds to a decimal number (an absent key counts as 0); the new value.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount) = 0;
  // Stores `desired` if the key holds `expected` (none: if it does not exist).
  virtual Result<CompareSet> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                         const std::string& desired) = 0;
  // Waits until all keys exist; a kTimeout lists the keys that are missing.
  virtual Status wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Whether all keys exist now.
  virtual Result<bool> check(const std::vector<std::string>& keys) = 0;
  virtual Result<bool> remove(const std::string& key) = 0;  // whether it existed
  virtual Result<std::int64_t> num_keys() = 0;
  virtual Status append(const std::string& key, const std::string& value) = 0;
  virtual Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Up to 100 keys: all or none of them, and no reader sees some without the others. Beyond that the store may set them
  // in several steps, and an error may leave the first ones set.
  virtual Status multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) = 0;
  // A queue under a key: first in, first out; pop waits.
  virtual Status push(const std::string& key, const std::string& value) = 0;
  virtual Result<std::string> pop(const std::string& key, Deadline deadline) = 0;
  virtual Result<std::int64_t> queue_length(const std::string& key) = 0;
  // Waits until `size` ranks have entered; one round trip. A kTimeout names the ranks that are missing; a rank that
  // enters twice is kMismatch for the second. The key may be used again after all ranks have left.
  virtual Status barrier(const std::string& key, int rank, int size, Deadline deadline,
                         const Waiting& waiting = {}) = 0;
  // The values of all ranks, by rank; one round trip. Errors as barrier().
  virtual Result<std::vector<std::string>> gather_all(const std::string& key, int rank, int size,
                                                      const std::string& value, Deadline deadline,
                                                      const Waiting& waiting = {}) = 0;

  // The limit of calls that have no deadline of their own; 5 min unless set. Before other threads call.
  virtual void set_call_timeout(Duration timeout) = 0;

  // Another handle to the same table that can wait while this one is busy.
  virtual Result<std::unique_ptr<Store>> clone(Deadline deadline) = 0;
};

}  // namespace tutti
