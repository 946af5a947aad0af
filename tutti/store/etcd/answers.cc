// In proto3's JSON 64-bit numbers are strings, bytes are base64, and what has its default value is left out; so
// everything is read through `number()` and `bytes()`, which supply it.
#include "tutti/store/etcd/api.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::etcd {
namespace {

using Json = nlohmann::json;

constexpr int kGrpcUnavailable = 14;  // no leader, or it changed

std::int64_t number(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  return found->is_string() ? parse_int(found->get_ref<const std::string&>()).value_or(0) : 0;
}

std::string bytes(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  return from_base64(found->get_ref<const std::string&>()).value_or("");
}

const Json& member(const Json& object, const char* name) {
  static const Json none = Json::object();
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

RangeAnswer to_range(const Json& in) {
  RangeAnswer answer{.items = {}, .count = number(in, "count")};
  for (const Json& item : member(in, "kvs"))
    answer.items.push_back(
        {bytes(item, "key"), bytes(item, "value"), number(item, "create_revision"), number(item, "mod_revision")});
  return answer;
}

Result<Json> parse(const std::string& body) {
  Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return Error{.code = Code::kCorrupt, .detail = "etcd answered what is no JSON object: " + body.substr(0, 120)};
  return json;
}

std::string text_member(const Json& object, const char* name) {
  const Json& found = member(object, name);
  return found.is_string() ? found.get<std::string>() : std::string();
}

}  // namespace

Error refusal(long status, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  std::string words = text_member(json, "error");
  if (words.empty()) words = text_member(json, "message");
  const auto has = [&](const char* part) { return words.find(part) != std::string::npos; };
  if (json.is_object() && number(json, "code") == kGrpcUnavailable)
    return Error{.code = Code::kPeerLost, .detail = words.empty() ? "etcd has no leader at the moment" : words};
  if (has("lease not found"))
    return Error{.code = Code::kAborted,
                 .detail = "etcd has forgotten this job: nobody kept its lease alive",
                 .hint = "every process of the job was stopped, or cut off from etcd, for longer than the lease"};
  if (has("too large") || has("larger than max"))
    return Error{.code = Code::kLimit,
                 .detail = "the value is larger than this etcd takes (" + words + ")",
                 .hint = "start etcd with a larger --max-request-bytes"};
  if (has("space exceeded"))
    return Error{.code = Code::kLimit, .detail = "etcd is full: " + words, .hint = "see etcdctl alarm list"};
  if (has("permission denied") || has("authentication") || has("user name is empty") || has(kBadToken))
    return Error{.code = Code::kRefused,
                 .detail = "etcd does not let us in: " + words,
                 .hint = "give a user that may read and write the keys of the job, and the password"};
  if (status == 404)
    return Error{.code = Code::kRefused,
                 .detail = "there is no etcd of version 3.4 or later: it does not know /v3/",
                 .hint = "check the address; version 3.4 is the first that serves the gateway under this name"};
  if (!json.is_object())
    return Error{.code = Code::kRefused,
                 .detail = "it answered HTTP " + std::to_string(status) + " and no JSON: another program than etcd",
                 .hint = "check the address and the port"};
  return Error{.code = Code::kSystem, .detail = "etcd: " + (words.empty() ? "HTTP " + std::to_string(status) : words)};
}

Result<TransactionAnswer> parse_transaction(const std::string& body) {
  const Json json = TUTTI_TRY(parse(body));
  TransactionAnswer answer{.succeeded = member(json, "succeeded") == Json(true),
                           .revision = number(member(json, "header"), "revision")};
  for (const Json& response : member(json, "responses")) {
    if (response.contains("response_range")) answer.ranges.push_back(to_range(response["response_range"]));
    answer.deleted += std::max<std::int64_t>(0, number(member(response, "response_delete_range"), "deleted"));
  }
  return answer;
}

Result<RangeAnswer> parse_range(const std::string& body, std::int64_t& revision) {
  const Json json = TUTTI_TRY(parse(body));
  revision = number(member(json, "header"), "revision");
  return to_range(json);
}

Result<std::string> parse_token(const std::string& body) { return text_member(TUTTI_TRY(parse(body)), "token"); }

Result<std::int64_t> parse_lease(const std::string& body) { return number(TUTTI_TRY(parse(body)), "ID"); }

Result<std::int64_t> parse_seconds_left(const std::string& body) {
  const Json json = TUTTI_TRY(parse(body));
  return number(member(json, "result"), "TTL");
}

WatchLine parse_watch_line(std::string_view text, std::int64_t from) {
  const Json json = Json::parse(text, nullptr, false);
  const Json& result = member(json, "result");
  if (const Json& events = member(result, "events"); !events.empty())
    return {number(member(*events.begin(), "kv"), "mod_revision"), {}};
  if (json.is_object() && json.contains("error")) {
    const Json& error = json["error"];
    return {{}, refusal(500, (error.is_object() ? error : json).dump())};
  }
  if (member(result, "canceled") == Json(true))
    return {{},
            Error{.code = Code::kSystem,
                  .detail = "etcd cannot tell what changed since revision " + std::to_string(from) + ": " +
                            text_member(result, "cancel_reason"),
                  .hint = "its history was compacted meanwhile; use a longer --auto-compaction-retention"}};
  return {};
}

}  // namespace tutti::etcd
