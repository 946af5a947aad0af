// Values to JSON and back. In proto3's JSON 64-bit numbers are strings, bytes are base64, and what has its default
// value is left out; so everything is read through `number()` and `bytes()`, which supply it.
//
// An endpoint that cannot be reached, or that has no leader at the moment, is not the end: the next one is asked, and
// after a whole round there is a pause. A transaction is the exception once it has been sent, for it may have been
// carried out: its caller knows how to find out.
#include "tutti/store/etcd/gateway.h"

#include <poll.h>

#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/store/etcd/base64.h"

namespace tutti::etcd {
namespace {

using Json = nlohmann::json;

constexpr int kPauseMs = 100;         // between two rounds over the endpoints
constexpr int kGrpcUnavailable = 14;  // no leader, or it changed
constexpr const char* kBadToken = "invalid auth token";

// The end of the range of all keys that begin with `prefix`.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');  // all that follow
  prefix.back() = char(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

void put_keys(Json& out, const std::string& key, bool prefix) {
  out["key"] = to_base64(key);
  if (prefix) out["range_end"] = to_base64(end_of(key));
}

Json to_json(const Range& range) {
  Json out;
  put_keys(out, range.key, range.prefix);
  if (range.revision != 0) out["revision"] = std::to_string(range.revision);
  if (range.limit != 0) out["limit"] = std::to_string(range.limit);
  if (range.what == Range::What::kKeys) out["keys_only"] = true;
  if (range.what == Range::What::kCount) out["count_only"] = true;
  if (range.oldest_first) out["sort_target"] = "CREATE", out["sort_order"] = "ASCEND";
  return out;
}

Json to_json(const Operation& operation, std::int64_t lease) {
  if (const auto* range = std::get_if<Range>(&operation)) return {{"request_range", to_json(*range)}};
  if (const auto* remove = std::get_if<Delete>(&operation)) {
    Json out;
    put_keys(out, remove->key, remove->prefix);
    return {{"request_delete_range", out}};
  }
  const auto& put = std::get<Put>(operation);
  return {{"request_put",
           {{"key", to_base64(put.key)}, {"value", to_base64(put.value)}, {"lease", std::to_string(lease)}}}};
}

Json to_json(const Compare& compare) {
  Json out = {{"key", to_base64(compare.key)}, {"result", "EQUAL"}};
  switch (compare.what) {
    case Compare::What::kAbsent:
      out["target"] = "VERSION", out["version"] = "0";
      break;
    case Compare::What::kValue:
      out["target"] = "VALUE", out["value"] = to_base64(compare.value);
      break;
    case Compare::What::kCreated:
      out["target"] = "CREATE", out["create_revision"] = std::to_string(compare.revision);
      break;
    case Compare::What::kModified:
      out["target"] = "MOD", out["mod_revision"] = std::to_string(compare.revision);
      break;
  }
  return out;
}

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

// What etcd says when it does not do as asked.
Error refusal(long status, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  std::string words = text_member(json, "error");
  if (words.empty()) words = text_member(json, "message");
  const auto has = [&](const char* part) { return words.find(part) != std::string::npos; };
  if (json.is_object() && number(json, "code") == kGrpcUnavailable)
    return Error{.code = Code::kPeerLost, .detail = words};
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

std::vector<std::string> urls_of(const std::string& text, bool secure) {
  std::vector<std::string> urls;
  for (std::string url : split(text, ',')) {
    url = std::string(trim(url));
    while (url.ends_with('/')) url.pop_back();
    if (url.empty()) continue;
    urls.push_back(url.find("://") == std::string::npos ? (secure ? "https://" : "http://") + url : url);
  }
  return urls;
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::create(const EtcdOptions& options) {
  auto urls = urls_of(options.endpoints, !options.ca_file.empty() || !options.certificate_file.empty());
  if (urls.empty())
    return Error{.code = Code::kUsage, .detail = "no etcd was named", .hint = "give its address, such as host:2379"};
  auto http = TUTTI_TRY(Http::create({options.ca_file, options.certificate_file, options.key_file}));
  return std::unique_ptr<Gateway>(new Gateway(std::move(http), std::move(urls), options.user, options.password));
}

Gateway::Gateway(std::unique_ptr<Http> http, std::vector<std::string> endpoints, std::string user, std::string password)
    : http_(std::move(http)),
      endpoints_(std::move(endpoints)),
      user_(std::move(user)),
      password_(std::move(password)) {}

std::string Gateway::endpoints_text() const { return join(endpoints_, ", "); }

Error Gateway::unreachable(Error error, Deadline deadline) const {
  error.detail = "etcd at " + endpoints_text() + " cannot be reached (" + error.detail + ")";
  error.waited = deadline.waited(), error.limit = deadline.limit();
  return error;
}

Status Gateway::log_in(Deadline deadline) {
  token_.clear();
  const Json body = {{"name", user_}, {"password", password_}};
  const Response response = TUTTI_TRY(http_->post(endpoint() + "/v3/auth/authenticate", body.dump(), {}, deadline));
  if (response.status != 200) return refusal(response.status, response.body);
  token_ = text_member(TUTTI_TRY(parse(response.body)), "token");
  return {};
}

Result<std::string> Gateway::attempt(const std::string& path, const std::string& body, Deadline deadline) {
  for (bool fresh = false;; fresh = true) {
    if (!user_.empty() && token_.empty()) {
      const Status in = log_in(deadline);
      // Nothing of the call itself has been sent.
      if (!in.ok() && in.error().code == Code::kPeerLost)
        return Error{.code = Code::kUnreachable, .detail = in.error().detail};
      TUTTI_TRY(in);
    }
    Response response = TUTTI_TRY(http_->post(endpoint() + path, body, token_, deadline));
    if (response.status == 200) return std::move(response.body);
    const bool stale = !user_.empty() && !fresh && response.body.find(kBadToken) != std::string::npos;
    if (!stale) return refusal(response.status, response.body);
    token_.clear();  // tokens live for five minutes
  }
}

Result<std::string> Gateway::call(const std::string& path, const std::string& body, bool once, Deadline deadline) {
  for (std::size_t tried = 1;; ++tried) {
    auto answer = attempt(path, body, deadline);
    if (answer.ok()) return answer;
    const Code code = answer.error().code;
    const bool lost = code == Code::kUnreachable || code == Code::kPeerLost;
    if (code == Code::kTimeout || (lost && deadline.expired())) return unreachable(answer.error(), deadline);
    if (!lost) return answer;
    current_ = (current_ + 1) % endpoints_.size();
    if (code == Code::kPeerLost && once) return answer;
    // Nothing tells when an endpoint comes back, so this one wait is a pause.
    if (tried % endpoints_.size() == 0) ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
}

Result<TransactionAnswer> Gateway::transact(const Transaction& transaction, std::int64_t lease, Deadline deadline) {
  Json body = {{"compare", Json::array()}, {"success", Json::array()}, {"failure", Json::array()}};
  for (const auto& compare : transaction.compare) body["compare"].push_back(to_json(compare));
  for (const auto& operation : transaction.success) body["success"].push_back(to_json(operation, lease));
  for (const auto& operation : transaction.failure) body["failure"].push_back(to_json(operation, lease));
  const Json json = TUTTI_TRY(parse(TUTTI_TRY(call("/v3/kv/txn", body.dump(), /*once=*/true, deadline))));
  TransactionAnswer answer{.succeeded = member(json, "succeeded") == Json(true),
                           .revision = number(member(json, "header"), "revision")};
  for (const Json& response : member(json, "responses")) {
    if (response.contains("response_range")) answer.ranges.push_back(to_range(response["response_range"]));
    answer.deleted += number(member(response, "response_delete_range"), "deleted");
  }
  return answer;
}

Result<RangeAnswer> Gateway::range(const Range& range, std::int64_t& revision, Deadline deadline) {
  const Json json = TUTTI_TRY(parse(TUTTI_TRY(call("/v3/kv/range", to_json(range).dump(), /*once=*/false, deadline))));
  revision = number(member(json, "header"), "revision");
  return to_range(json);
}

Result<std::optional<std::int64_t>> Gateway::await_change(const std::string& key, bool prefix, Change change,
                                                          std::int64_t from, Deadline deadline) {
  Json create;
  put_keys(create, key, prefix);
  create["start_revision"] = std::to_string(from);
  create["filters"] = Json::array({change == Change::kPut ? "NODELETE" : "NOPUT"});
  const std::string body = Json{{"create_request", create}}.dump();
  std::optional<std::int64_t> revision;
  Status trouble;
  const auto line = [&](std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    const Json& result = member(json, "result");
    for (const Json& event : member(result, "events")) {
      revision = number(member(event, "kv"), "mod_revision");
      return false;
    }
    if (json.is_object() && json.contains("error")) {
      const Json& error = json["error"];
      trouble = refusal(500, (error.is_object() ? error : json).dump());
      return false;
    }
    if (member(result, "canceled") == Json(true)) {
      trouble = Error{.code = Code::kSystem,
                      .detail = "etcd cannot tell what changed since revision " + std::to_string(from) + ": " +
                                text_member(result, "cancel_reason"),
                      .hint = "its history was compacted meanwhile; use a longer --auto-compaction-retention"};
      return false;
    }
    return true;
  };
  for (std::size_t tried = 1;; ++tried) {
    const bool fresh = !user_.empty() && token_.empty();
    const Status in = fresh ? log_in(deadline) : Status();
    const auto came =
        in.ok() ? http_->stream(endpoint() + "/v3/watch", body, token_, line, deadline) : Result<bool>(in.error());
    if (!trouble.ok() && trouble.error().code == Code::kRefused && !user_.empty() && !fresh) {
      token_.clear();  // it may be too old
      trouble = {};
      continue;
    }
    if (!trouble.ok() && trouble.error().code != Code::kPeerLost) return trouble;
    if (came.ok() && trouble.ok()) return revision;
    if (!came.ok() && came.error().code != Code::kUnreachable && came.error().code != Code::kPeerLost)
      return came.status();
    if (deadline.expired()) return std::optional<std::int64_t>();
    trouble = {};
    current_ = (current_ + 1) % endpoints_.size();
    if (tried % endpoints_.size() == 0) ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
}

Result<std::int64_t> Gateway::grant(Duration lease, Deadline deadline) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(lease).count();
  const std::string body = Json{{"TTL", std::to_string(seconds)}}.dump();
  const Json json = TUTTI_TRY(parse(TUTTI_TRY(call("/v3/lease/grant", body, /*once=*/false, deadline))));
  return number(json, "ID");
}

Result<std::int64_t> Gateway::keep_alive(std::int64_t lease, Deadline deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  const Json json = TUTTI_TRY(parse(TUTTI_TRY(call("/v3/lease/keepalive", body, /*once=*/false, deadline))));
  return number(member(json, "result"), "TTL");
}

Status Gateway::revoke(std::int64_t lease, Deadline deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  return call("/v3/lease/revoke", body, /*once=*/false, deadline).status();
}

}  // namespace tutti::etcd
