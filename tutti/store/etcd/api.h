#pragma once
// The part of etcd's v3 API that the store needs: ranges, transactions, watches and leases as values, the calls, and
// the parsers of the answers. Private to store/etcd/. https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "tutti/store/etcd/etcd_store.h"
#include "tutti/store/etcd/http.h"

namespace tutti::etcd {

struct KeyValue {
  std::string key, value;
  std::int64_t created = 0;   // the revision at which the key came to be
  std::int64_t modified = 0;  // at which it was written last
};

struct Range {
  std::string key;
  bool prefix = false;        // all keys that begin with `key`
  std::int64_t revision = 0;  // as of then; 0: now
  std::int64_t limit = 0;
  enum class What { kAll, kKeys, kCount } what = What::kAll;
  bool oldest_first = false;
};
struct RangeAnswer {
  std::vector<KeyValue> items;
  std::int64_t count = 0;
};
struct Put {
  std::string key, value;
};
struct Delete {
  std::string key;
  bool prefix = false;
};
using Operation = std::variant<Range, Put, Delete>;

// What must hold for a transaction's changes to be made.
struct Compare {
  enum class What { kAbsent, kValue, kCreated, kModified } what;
  std::string key;
  std::string value = {};
  std::int64_t revision = 0;
};

struct Transaction {
  std::vector<Compare> compare;
  std::vector<Operation> success, failure;
};
struct TransactionAnswer {
  bool succeeded = false;
  std::int64_t revision = 0;
  std::vector<RangeAnswer> ranges;  // of the branch that ran, in its order
  std::int64_t deleted = 0;         // keys that the branch deleted
};

// Threads: one at a time.
class Gateway {
 public:
  static Result<std::unique_ptr<Gateway>> create(const EtcdOptions& options);
  Gateway(std::unique_ptr<Http> http, std::vector<std::string> endpoints, std::string user = {},
          std::string password = {});

  // A call tries one endpoint after the other, with a pause after each round, until one answers or the deadline passes
  // (kTimeout, or kUnreachable if none could be reached). A call whose answer is lost is sent again, and may so be
  // carried out twice: the comparisons of a transaction must ensure that its second time changes nothing.
  Result<TransactionAnswer> transact(const Transaction& transaction, std::int64_t lease, Deadline deadline);
  // One snapshot; `revision` is filled in.
  Result<RangeAnswer> range(const Range& range, std::int64_t& revision, Deadline deadline);

  // Waits for the first change of the wanted kind at or after the revision `from`: its revision, or none at the
  // deadline.
  enum class Change { kPut, kDelete };
  Result<std::optional<std::int64_t>> await_change(const std::string& key, bool prefix, Change change,
                                                   std::int64_t from, Deadline deadline);

  Result<std::int64_t> grant(Duration lease, Deadline deadline);
  // The seconds that it now has; 0: there is no such lease any more.
  Result<std::int64_t> keep_alive(std::int64_t lease, Deadline deadline);
  // Ends the lease and deletes its keys.
  Status revoke(std::int64_t lease, Deadline deadline);

  std::string endpoints_text() const;

 private:
  Result<std::string> call(const std::string& path, const std::string& body, Deadline deadline);
  template <class Attempt>
  std::invoke_result_t<Attempt> retry(Deadline deadline, const Attempt& attempt);
  template <class Attempt>
  std::invoke_result_t<Attempt> logged_in(Deadline deadline, const Attempt& attempt);
  Status log_in(Deadline deadline);
  Error unreachable(Error error, Deadline deadline) const;
  const std::string& endpoint() const { return endpoints_[current_]; }

  std::unique_ptr<Http> http_;
  std::vector<std::string> endpoints_;
  std::size_t current_ = 0;
  std::string user_, password_, token_;
};

// What etcd answers, as values. A member that is missing has its default, as in proto3. All are kCorrupt if the body is
// no JSON object.
Result<TransactionAnswer> parse_transaction(const std::string& body);
Result<RangeAnswer> parse_range(const std::string& body, std::int64_t& revision);
Result<std::string> parse_token(const std::string& body);
Result<std::int64_t> parse_lease(const std::string& body);
Result<std::int64_t> parse_seconds_left(const std::string& body);  // of a lease; 0: there is none

// A line of the answer to a watch that began at revision `from`: the revision of a change, an error, or neither.
struct WatchLine {
  std::optional<std::int64_t> revision;
  Status trouble;
};
WatchLine parse_watch_line(std::string_view text, std::int64_t from);

// The error in an answer that is not HTTP 200. kPeerLost: etcd has no leader at the moment.
Error refusal(long status, const std::string& body);

// Keys and values are bytes, but JSON has only text: RFC 4648, with padding.
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tutti::etcd
