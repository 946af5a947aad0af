#pragma once
// One call of a Store as a value, and its answer: what travels to the server, what a file store logs, what Table
// carries out.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"

namespace tutti::store {

// Numbers are part of the wire and file formats: never reuse one.
enum class Op : std::uint8_t {
  kSet = 1,
  kGet = 2,  // one key or several
  kAdd = 3,
  kCompareSet = 4,
  kWait = 5,
  kCheck = 6,
  kRemove = 7,
  kNumKeys = 8,
  kAppend = 9,
  kMultiSet = 10,
  kPush = 11,
  kPop = 12,
  kQueueLength = 13,
  kBarrier = 14,
  kGatherAll = 15,
};

struct Request {
  Op op = Op::kNumKeys;
  std::vector<std::string> keys;
  std::vector<std::string> values;  // compare_set: desired, then what is expected unless the key should not exist
  std::int64_t number = 0;          // add: the amount
  std::int32_t rank = -1;           // barrier, gather_all
  std::int32_t size = 0;

  bool operator==(const Request&) const = default;
};

// The client that makes a call, and which of its calls it is. Client 0 never repeats a call.
struct Origin {
  std::uint64_t client = 0;
  std::uint32_t number = 0;  // rises from call to call of one client

  bool operator==(const Origin&) const = default;
};

struct Reply {
  std::optional<Error> error;  // then the rest is empty
  std::vector<std::string>
      values;               // get, pop, gather_all (by rank), compare_set (what the key holds now, if it exists)
  std::int64_t number = 0;  // add, num_keys, queue_length
  bool flag = false;        // check, remove, compare_set (stored)
};

// What a waiting call still waits for.
struct Missing {
  std::vector<int> ranks;         // barrier, gather_all
  std::vector<std::string> keys;  // get, wait, pop
};

// Limits of every store (kLimit beyond them).
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = std::size_t(8) << 20;
inline constexpr std::size_t kMaxKeys = 128 * 1024;
inline constexpr std::size_t kMaxTableBytes = std::size_t(256) << 20;
inline constexpr std::size_t kMaxCallBytes = std::size_t(64)
                                             << 20;  // all keys and values of one request, or values of one answer
inline constexpr std::size_t kMaxKeysPerCall = 64 * 1024;
inline constexpr std::size_t kMaxWaiters = 64 * 1024;
inline constexpr int kMaxRanks = 1 << 20;

// kInvalidArgument or kLimit where a request is malformed or too large; checked before it is sent and before it is
// obeyed.
Status check_request(const Request& request);
bool may_wait(Op op);
// Whether a call that is made twice does harm: it changes the table, or takes part in a barrier that is over.
bool must_not_repeat(Op op);
// get "addr/3", wait for 4 keys, barrier "init": for error texts.
std::string describe(const Request& request);
// kTimeout that says what did not come.
Error timeout_error(const Request& request, const Missing& missing, Deadline deadline);

}  // namespace tutti::store
