// torchrun ignores keys of --rdzv-conf that its backend does not read (`timeout=` with c10d is the classic). Here a key
// counts, or is reported as one of torchrun's that changes nothing, or is rejected.
#include "tutti/launch/membership/options.h"

#include <algorithm>
#include <iterator>

#include "tutti/base/text.h"
#include "tutti/transport/address.h"

namespace tutti::launch {
namespace {

constexpr int kMostNodes = 100000;
constexpr double kLongestTime = 1e9;  // seconds
constexpr double kAttempts = 3;       // of keep_alive_max_attempt, as torchrun has it

constexpr BackendTraits kBackends[] = {
    {.backend = RendezvousBackend::kStatic, .name = "static", .numbered = true, .node_serves = true},
    {.backend = RendezvousBackend::kElastic,
     .name = "elastic",
     .default_port = 29400,  // torchrun's
     .node_serves = true,
     .endpoint = "HOST or HOST:PORT, the same on all nodes: the node whose address it is serves there"},
    {.backend = RendezvousBackend::kEtcd,
     .name = "etcd",
     .default_port = 2379,
     .endpoint = "HOST:PORT of the etcd server, several with commas"}};

Error usage(std::string detail, std::string hint) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

Status parse_nnodes(const std::string& text, RendezvousOptions& options) {
  if (text.empty()) return {};
  const auto parts = split(text, ':');
  const auto min = parse_int(parts[0]), max = parse_int(parts.back());
  if (parts.size() > 2 || !min || !max || *min < 1 || *max > kMostNodes || *min > *max)
    return usage(
        "--nnodes needs a number of nodes from 1 to " + std::to_string(kMostNodes) + ", or MIN:MAX, not '" + text + "'",
        "for example --nnodes 2, or --nnodes 1:4 for a job that continues with fewer");
  options.min = int(*min), options.max = int(*max);
  return {};
}

Result<RendezvousBackend> parse_backend(const std::string& text) {
  std::vector<std::string> known;
  for (const BackendTraits& traits : kBackends) {
    if (text == traits.name) return traits.backend;
    known.push_back(traits.name);
  }
  if (text == "c10d") return RendezvousBackend::kElastic;  // torchrun's name
  if (text == "etcd-v2")
    return usage("--rdzv-backend etcd-v2 uses an interface that etcd has removed",
                 "--rdzv-backend etcd uses the current one, v3");
  return usage("--rdzv-backend '" + text + "' is not known",
               did_you_mean(nearest(text, known), "static, elastic (also c10d) or etcd"));
}

Status parse_endpoint(const std::string& text, RendezvousOptions& options) {
  const BackendTraits& backend = traits_of(options.backend);
  if (text.empty() && backend.endpoint == nullptr) return {};
  if (text.empty())
    return usage("--rdzv-backend " + std::string(backend.name) + " needs --rdzv-endpoint", backend.endpoint);
  std::vector<std::string> all;
  for (const std::string& part : split(text, ',')) {
    if (!backend.node_serves && part.find("://") != std::string::npos) {
      all.push_back(part);
      continue;
    }
    auto address = transport::parse_address(part, std::uint16_t(backend.default_port));
    const bool port_zero = address.ok() && address->port == 0 && backend.default_port != 0;  // nobody can dial it
    if (port_zero && backend.node_serves) {
      if (options.max.value_or(1) > 1)
        return usage("--rdzv-endpoint '" + text + "' asks for any free port, which the other nodes cannot know",
                     "name one, the same on all nodes, for example " + address->host + ":" +
                         std::to_string(backend.default_port) + "; one node alone needs none: --standalone");
      options.backend = RendezvousBackend::kStatic;  // torchrun's idiom for one node: no other has to find it
      return {};
    }
    if (!address.ok() || address->is_unix() || address->host.empty() || port_zero)
      return usage("--rdzv-endpoint '" + text + "' is not an endpoint",
                   "HOST or HOST:PORT, for example 10.0.0.1:29400");
    all.push_back(to_string(*address));
  }
  if (backend.node_serves && all.size() > 1)
    return usage("--rdzv-endpoint names several endpoints", "all nodes need the same one; only etcd has several");
  options.endpoint = join(all, ",");
  return {};
}

Result<Duration> positive_seconds(const std::string& key, const std::string& text) {
  const auto seconds = parse_seconds(text);
  if (seconds && *seconds == 0)  // torchrun refuses it, too
    return usage("--rdzv-conf " + key + " needs more than 0 seconds, not '" + text + "'", "for example 500ms, or 1");
  if (!seconds || !(*seconds > 0 && *seconds <= kLongestTime))
    return usage("--rdzv-conf " + key + " needs a time, not '" + text + "'", "seconds, or 500ms, 2min");
  return from_seconds(*seconds);
}

Result<bool> true_or_false(const std::string& key, const std::string& text, const std::string& hint) {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false") return false;
  return usage("--rdzv-conf " + key + " is true or false, not '" + text + "'", hint);
}

// By torchrun's names, and by curl's.
std::string* field_of(const std::string& key, EtcdAccess& access) {
  if (key == "user") return &access.user;
  if (key == "cacert") return &access.ca_file;
  if (key == "ssl_cert" || key == "cert") return &access.certificate_file;
  if (key == "ssl_cert_key" || key == "key") return &access.key_file;
  return nullptr;
}

Status parse_conf(const std::string& text, RendezvousOptions& options) {
  std::optional<Duration> interval;
  double attempts = kAttempts;
  for (const std::string& part : text.empty() ? std::vector<std::string>() : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string key(trim(part.substr(0, equals)));
    if (equals == std::string::npos || key.empty())
      return usage("--rdzv-conf needs KEY=VALUE,..., not '" + part + "'",
                   "for example join_timeout=60,last_call_timeout=5");
    const std::string value(trim(part.substr(equals + 1)));
    if (key == "join_timeout" || key == "timeout") {
      options.join_timeout = TUTTI_TRY(positive_seconds(key, value));
    } else if (key == "last_call_timeout") {
      options.last_call = TUTTI_TRY(positive_seconds(key, value));
    } else if (key == "keep_alive_interval") {
      interval = TUTTI_TRY(positive_seconds(key, value));
    } else if (key == "keep_alive_max_attempt") {
      const auto count = parse_int(value);
      if (!count || *count < 1 || *count > 1000000)
        return usage("--rdzv-conf keep_alive_max_attempt needs a number, not '" + value + "'", "for example 3");
      attempts = double(*count);
      if (!interval) interval = std::chrono::seconds(1);
    } else if (key == "is_host") {
      options.is_host = TUTTI_TRY(true_or_false(key, value, "leave it out: tutti then finds out"));
    } else if (key == "failover") {
      if (!traits_of(options.backend).node_serves)
        return usage("--rdzv-conf failover is not for --rdzv-backend etcd, which replicates its own data",
                     "leave it out");
      options.failover = TUTTI_TRY(true_or_false(key, value, "false: the job needs the node that serves its store"));
    } else if (key == "close_timeout" || key == "read_timeout") {
      options.without_effect.push_back(key + " of --rdzv-conf");
    } else if (std::string* const field = field_of(key, options.etcd)) {
      if (traits_of(options.backend).node_serves)
        return usage("--rdzv-conf " + key + " belongs to --rdzv-backend etcd", "leave it out");
      if (value.empty()) return usage("--rdzv-conf " + key + " is empty", "leave it out, or name one");
      *field = value;
    } else {
      static const std::string known[] = {
          "join_timeout", "timeout",  "last_call_timeout", "keep_alive_interval",   "is_host", "failover", "user",
          "cacert",       "ssl_cert", "ssl_cert_key",      "keep_alive_max_attempt"};
      return usage("--rdzv-conf " + key + " has no meaning for tutti run",
                   did_you_mean(nearest(key, known), "there are " + join(known, ", ")));
    }
  }
  if (options.etcd.certificate_file.empty() != options.etcd.key_file.empty())
    return usage("--rdzv-conf ssl_cert and ssl_cert_key belong together", "give both, or none");
  if (options.is_host && options.backend != RendezvousBackend::kElastic)
    return usage("--rdzv-conf is_host belongs to --rdzv-backend elastic", "leave it out");
  if (interval) options.lost_after = from_seconds(to_seconds(*interval) * attempts);
  return {};
}

}  // namespace

const BackendTraits& traits_of(RendezvousBackend backend) {
  return *std::find_if(std::begin(kBackends), std::end(kBackends),
                       [&](const BackendTraits& traits) { return traits.backend == backend; });
}

Result<RendezvousOptions> parse_rendezvous(const std::string& nnodes, const std::string& backend,
                                           const std::string& endpoint, const std::string& conf) {
  RendezvousOptions options;
  TUTTI_TRY(parse_nnodes(nnodes, options));
  options.backend = TUTTI_TRY(parse_backend(backend));
  TUTTI_TRY(parse_endpoint(endpoint, options));
  TUTTI_TRY(parse_conf(conf, options));
  return options;
}

}  // namespace tutti::launch
