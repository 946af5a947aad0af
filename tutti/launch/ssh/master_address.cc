#include "tutti/launch/ssh/master_address.h"

#include <algorithm>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

bool is_loopback(const std::string& host) { return transport::is_loopback({.host = host}); }

// Several hosts of a list may be one machine, in tests above all. A host that could not list its addresses is not
// asked.
bool needs_a_way(const Greeting& host, const Greeting& first) {
  return !host.addresses.empty() && (host.host != first.host || host.addresses != first.addresses);
}

bool has(const Greeting& host, const std::string& address) {
  return std::any_of(host.addresses.begin(), host.addresses.end(),
                     [&](const transport::InterfaceAddress& one) { return one.host == address; });
}

// Whether a host has another address in the same subnet. The bridges of containers have equal addresses on many hosts.
bool reaches(const Greeting& host, const transport::InterfaceAddress& address) {
  return !has(host, address.host) &&
         std::any_of(host.addresses.begin(), host.addresses.end(), [&](const transport::InterfaceAddress& one) {
           return one.prefix == address.prefix && in_subnet_of(address, one.host);
         });
}

std::string without_user(const std::string& name) { return name.substr(name.find('@') + 1); }

Error unknown(std::span<const GreetedHost> hosts, const std::vector<std::string>& others) {
  std::vector<std::string> texts;
  for (const auto& one : hosts[0].greeting.addresses)
    if (!is_loopback(one.host) && !one.is_link_local) texts.push_back(one.interface + " (" + one.host + ")");
  return Error{.code = Code::kUsage,
               .detail = "no address of " + hosts[0].name + " is known at which " + join(others, ", ") +
                         " can reach it: the command of --ssh sets no SSH_CONNECTION, and they share no subnet",
               .hint = "give --iface NAME or --master-addr ADDRESS; " + hosts[0].name + " has " +
                       (texts.empty() ? "only its loopback" : join(texts, ", "))};
}

}  // namespace

Result<std::string> master_address_of(std::span<const GreetedHost> hosts, const std::string& iface) {
  const Greeting& first = hosts[0].greeting;
  if (!iface.empty()) {
    auto found = transport::address_at(iface, first.addresses);
    if (found.ok()) return found;
    Error error = found.error();
    error.detail = "--iface on " + hosts[0].name + ": " + error.detail;
    return error;
  }
  if (!first.address.empty() && !is_loopback(first.address)) return first.address;
  for (const GreetedHost& host : hosts)
    if (const std::string& seen = host.greeting.from; !seen.empty() && !is_loopback(seen)) return seen;
  std::vector<std::string> others;
  for (const GreetedHost& host : hosts)
    if (needs_a_way(host.greeting, first)) others.push_back(host.name);
  if (others.empty()) return std::string("127.0.0.1");
  if (const std::string name = without_user(hosts[0].name); !is_loopback(name) && has(first, name)) return name;
  for (const transport::InterfaceAddress& address : first.addresses) {
    if (is_loopback(address.host) || address.is_link_local) continue;
    if (std::all_of(hosts.begin(), hosts.end(), [&](const GreetedHost& host) {
          return !needs_a_way(host.greeting, first) || reaches(host.greeting, address);
        }))
      return address.host;
  }
  return unknown(hosts, others);
}

}  // namespace tutti::launch
