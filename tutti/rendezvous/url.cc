// scheme "://" place [ "?" name "=" number { "&" name "=" number } ]
#include "tutti/rendezvous/url.h"

#include <sys/un.h>

#include <vector>

#include "tutti/base/text.h"
#include "tutti/transport/address.h"

namespace tutti::rendezvous {
namespace {

constexpr const char* kForms = "env://, or tcp://host:port, file:///path or unix://@name with ?rank=0&world_size=2";

constexpr std::size_t kLongestSocketName = sizeof(sockaddr_un::sun_path) - 1;

Error wrong(const std::string& url, const std::string& how, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = "the rendezvous URL \"" + url + "\" " + how, .hint = std::move(hint)};
}

Status read_query(RendezvousUrl& parsed, const std::string& url, std::string_view query) {
  const std::vector<std::string> parameters = {"rank", "world_size"};
  for (const std::string& part : split(query, '&')) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    if (name != "rank" && name != "world_size")
      return wrong(url, "has the unknown parameter \"" + name + "\"",
                   did_you_mean(nearest(name, parameters), "known are " + tutti::join(parameters, ", ")));
    const auto value =
        equals == std::string::npos ? std::nullopt : parse_int(std::string_view(part).substr(equals + 1));
    if (!value || *value < 0 || *value > INT32_MAX) return wrong(url, "needs a whole number after " + name + "=");
    auto& target = name == "rank" ? parsed.rank : parsed.world_size;
    if (target && *target != int(*value))
      return wrong(url, "gives " + name + " twice: " + std::to_string(*target) + " and " + std::to_string(*value));
    target = int(*value);
  }
  return {};
}

}  // namespace

Result<RendezvousUrl> parse_url(const std::string& url) {
  const std::vector<std::string> schemes = {"env", "tcp", "file", "unix"};
  RendezvousUrl parsed;
  const std::size_t colon = url.find("://");
  if (colon == std::string::npos) return wrong(url, "has no scheme", std::string("expected ") + kForms);
  const std::string scheme = url.substr(0, colon);
  std::string_view rest = std::string_view(url).substr(colon + 3);
  if (const std::size_t question = rest.find('?'); question != std::string_view::npos) {
    TUTTI_TRY(read_query(parsed, url, rest.substr(question + 1)));
    rest = rest.substr(0, question);
  }
  if (scheme == "env") {
    parsed.scheme = Scheme::kEnv;
    if (!rest.empty())
      return wrong(url, "names a place, but env:// takes it from MASTER_ADDR and MASTER_PORT", "use tcp://host:port");
  } else if (scheme == "tcp") {
    parsed.scheme = Scheme::kTcp;
    if (rest.ends_with('/')) rest.remove_suffix(1);
    const auto address = transport::parse_address(rest);
    if (!address.ok()) return wrong(url, "has no valid host:port: " + address.error().detail);
    if (address->is_unix() || address->host.empty())
      return wrong(url, "has no host", "for example tcp://10.0.0.7:29500");
    if (address->port == 0)
      return wrong(url, "has no port", "every rank must know it: for example tcp://" + address->host + ":29500");
    parsed.host = address->host;
    parsed.port = address->port;
  } else if (scheme == "file") {
    parsed.scheme = Scheme::kFile;
    if (rest.empty()) return wrong(url, "has no path", "for example file:///shared/job-17");
    if (rest.front() != '/')
      return wrong(url, "has a path that is not absolute", "write three slashes: file:///" + std::string(rest));
    parsed.path = rest;
  } else if (scheme == "unix") {
    parsed.scheme = Scheme::kUnix;
    if (rest.empty() || rest == "@") return wrong(url, "names no socket", "for example unix://@job-17");
    if (rest.front() != '/' && rest.front() != '@')
      return wrong(url, "has a path that is not absolute", "write unix://@" + std::string(rest) + ", or three slashes");
    if (rest.size() > kLongestSocketName)
      return wrong(url, "has a name of " + std::to_string(rest.size()) + " bytes",
                   "the system allows " + std::to_string(kLongestSocketName));
    parsed.path = rest;
  } else {
    return wrong(url, "has the unknown scheme \"" + scheme + "\"",
                 did_you_mean(nearest(scheme, schemes), "known are " + tutti::join(schemes, ", ")));
  }
  return parsed;
}

}  // namespace tutti::rendezvous
