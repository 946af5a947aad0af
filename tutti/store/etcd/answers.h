#pragma once
// What an etcd answers, read as values. Whatever comes is a value or a sentence: a member that is missing has its
// default, as in proto3. Private to store/etcd/.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/store/etcd/api.h"

namespace tutti::etcd {

inline constexpr const char* kBadToken = "invalid auth token";

// kCorrupt, all of these: no JSON object.
Result<TransactionAnswer> parse_transaction(const std::string& body);
Result<RangeAnswer> parse_range(const std::string& body, std::int64_t& revision);
Result<std::string> parse_token(const std::string& body);
Result<std::int64_t> parse_lease(const std::string& body);
Result<std::int64_t> parse_seconds_left(const std::string& body);  // of a lease; 0: there is none

// A line of an answer to a watch that began at revision `from`: the revision of a change, trouble, or neither.
struct WatchLine {
  std::optional<std::int64_t> revision;
  Status trouble;
};
WatchLine parse_watch_line(std::string_view text, std::int64_t from);

// What etcd says when it does not do as asked, with this HTTP status. kPeerLost: it has no leader at the moment.
Error refusal(long status, const std::string& body);

}  // namespace tutti::etcd
