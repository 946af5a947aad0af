// Values to JSON; what comes back is read in answers.cc.
//
// An endpoint that cannot be reached, or that has no leader at the moment, is not the end: the next one is asked, and
// after a whole round there is a pause. So it is with an answer that is lost, though the call may have been carried
// out: only the caller's comparisons tell (session.cc).
#include "tutti/store/etcd/api.h"

#include <poll.h>

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

Result<std::string> Gateway::call(const std::string& path, const std::string& body, Deadline deadline) {
  Error last{.code = Code::kTimeout, .detail = "no time is left for the call"};
  for (std::size_t tried = 1; !deadline.expired(); ++tried) {
    auto answer = attempt(path, body, deadline);
    if (answer.ok()) return answer;
    last = answer.error();
    if (last.code == Code::kTimeout) break;
    if (last.code != Code::kUnreachable && last.code != Code::kPeerLost) return answer;
    current_ = (current_ + 1) % endpoints_.size();
    // Nothing tells when an endpoint comes back, so this one wait is a pause.
    if (tried % endpoints_.size() == 0) ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
  if (last.code == Code::kPeerLost) last.code = Code::kTimeout;  // it was reached, and has not answered
  return unreachable(std::move(last), deadline);
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
  std::optional<std::int64_t> revision;
  Status trouble;
  const auto line = [&](std::string_view text) {
    const WatchLine read = parse_watch_line(text, from);
    revision = read.revision;
    trouble = read.trouble;
    return !revision && trouble.ok();
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

}  // namespace tutti::etcd
