// Values become JSON, JSON becomes values. In proto3's JSON 64-bit numbers are strings, bytes are base64, and members
// that have their default value are missing; number() and bytes() supply it.
//
// An endpoint that cannot be reached, or that has no leader at the moment, is not the end: retry() tries the next one.
// So it does when an answer is lost, though the call may have been carried out: only the caller's comparisons can tell
// (session.cc).
#include "tutti/store/etcd/api.h"

#include <openssl/evp.h>
#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::etcd {
namespace {

using Json = nlohmann::json;

constexpr int kPauseMs = 100;  // between two rounds over the endpoints

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
  auto http = TUTTI_TRY(open_http({options.ca_file, options.certificate_file, options.key_file}));
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
  token_ = TUTTI_TRY(parse_token(response.body));
  return {};
}

// The result of `attempt` at one endpoint, with a token of the user if there is one. Tokens expire after five minutes,
// so where etcd refuses one, `attempt` is made once more with a new one.
template <class Attempt>
std::invoke_result_t<Attempt> Gateway::logged_in(Deadline deadline, const Attempt& attempt) {
  for (;;) {
    const bool fresh = token_.empty();
    if (!user_.empty() && fresh) {
      const Status in = log_in(deadline);
      // Nothing of the call itself has been sent.
      if (!in.ok() && in.error().code == Code::kPeerLost)
        return Error{.code = Code::kUnreachable, .detail = in.error().detail};
      TUTTI_TRY(in);
    }
    auto result = attempt();
    if (result.ok() || user_.empty() || fresh || result.error().code != Code::kRefused) return result;
    token_.clear();
  }
}

// The result of `attempt`, which is made at one endpoint after the other until one answers or the deadline passes.
template <class Attempt>
std::invoke_result_t<Attempt> Gateway::retry(Deadline deadline, const Attempt& attempt) {
  Error last{.code = Code::kTimeout, .detail = "no time is left for the call"};
  for (std::size_t tried = 1; !deadline.expired(); ++tried) {
    auto result = logged_in(deadline, attempt);
    if (result.ok()) return result;
    last = result.error();
    if (last.code == Code::kTimeout) break;
    if (last.code != Code::kUnreachable && last.code != Code::kPeerLost) return result;
    current_ = (current_ + 1) % endpoints_.size();
    // No event tells when an endpoint comes back, so this one wait is a pause.
    if (tried % endpoints_.size() == 0) ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
  if (last.code == Code::kPeerLost) last.code = Code::kTimeout;  // it was reached, and has not answered
  return unreachable(std::move(last), deadline);
}

Result<std::string> Gateway::call(const std::string& path, const std::string& body, Deadline deadline) {
  return retry(deadline, [&]() -> Result<std::string> {
    Response response = TUTTI_TRY(http_->post(endpoint() + path, body, token_, deadline));
    if (response.status == 200) return std::move(response.body);
    return refusal(response.status, response.body);
  });
}

Result<TransactionAnswer> Gateway::transact(const Transaction& transaction, std::int64_t lease, Deadline deadline) {
  Json body = {{"compare", Json::array()}, {"success", Json::array()}, {"failure", Json::array()}};
  for (const auto& compare : transaction.compare) body["compare"].push_back(to_json(compare));
  for (const auto& operation : transaction.success) body["success"].push_back(to_json(operation, lease));
  for (const auto& operation : transaction.failure) body["failure"].push_back(to_json(operation, lease));
  return parse_transaction(TUTTI_TRY(call("/v3/kv/txn", body.dump(), deadline)));
}

Result<RangeAnswer> Gateway::range(const Range& range, std::int64_t& revision, Deadline deadline) {
  return parse_range(TUTTI_TRY(call("/v3/kv/range", to_json(range).dump(), deadline)), revision);
}

Result<std::optional<std::int64_t>> Gateway::await_change(const std::string& key, bool prefix, Change change,
                                                          std::int64_t from, Deadline deadline) {
  Json create;
  put_keys(create, key, prefix);
  create["start_revision"] = std::to_string(from);
  create["filters"] = Json::array({change == Change::kPut ? "NODELETE" : "NOPUT"});
  const std::string body = Json{{"create_request", create}}.dump();
  auto came = retry(deadline, [&]() -> Result<std::optional<std::int64_t>> {
    WatchLine last;
    const auto line = [&](std::string_view text) {
      last = parse_watch_line(text, from);
      return !last.revision && last.trouble.ok();
    };
    TUTTI_TRY(http_->stream(endpoint() + "/v3/watch", body, token_, line, deadline));
    TUTTI_TRY(last.trouble);
    return last.revision;
  });
  const bool is_late = !came.ok() && (came.error().code == Code::kTimeout || came.error().code == Code::kUnreachable);
  if (is_late && deadline.expired()) return std::optional<std::int64_t>();
  return came;
}

Result<std::int64_t> Gateway::grant(Duration lease, Deadline deadline) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(lease).count();
  const std::string body = Json{{"TTL", std::to_string(seconds)}}.dump();
  return parse_lease(TUTTI_TRY(call("/v3/lease/grant", body, deadline)));
}

Result<std::int64_t> Gateway::keep_alive(std::int64_t lease, Deadline deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  return parse_seconds_left(TUTTI_TRY(call("/v3/lease/keepalive", body, deadline)));
}

Status Gateway::revoke(std::int64_t lease, Deadline deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  return call("/v3/lease/revoke", body, deadline).status();
}

// ---- answers ----

namespace {

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
    return Error{.code = Code::kCorrupt, .detail = "etcd's answer is not a JSON object: " + body.substr(0, 120)};
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
                 .detail = "etcd has forgotten this job: its lease was not kept alive",
                 .hint = "every process of the job was stopped, or cut off from etcd, for longer than the lease"};
  if (has("too large") || has("larger than max"))
    return Error{.code = Code::kLimit,
                 .detail = "the value is larger than this etcd accepts (" + words + ")",
                 .hint = "start etcd with a larger --max-request-bytes"};
  if (has("space exceeded"))
    return Error{.code = Code::kLimit, .detail = "etcd is full: " + words, .hint = "see etcdctl alarm list"};
  if (has("permission denied") || has("authentication") || has("user name is empty") || has("invalid auth token"))
    return Error{.code = Code::kRefused,
                 .detail = "etcd denies access: " + words,
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
                  .detail = "etcd cannot report what changed since revision " + std::to_string(from) + ": " +
                            text_member(result, "cancel_reason"),
                  .hint = "its history was compacted meanwhile; use a longer --auto-compaction-retention"}};
  return {};
}

// ---- base64 ----
//
// Three bytes are four letters. OpenSSL's block functions do the work; they know nothing of padding on the way back,
// where they count it as zero bytes.

std::string to_base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // EVP writes a final zero
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  text.resize(std::size_t(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty()) return std::string();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  if (size < 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  bytes.resize(std::size_t(size) - padding);
  return bytes;
}

}  // namespace tutti::etcd
