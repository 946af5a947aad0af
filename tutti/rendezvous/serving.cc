// The trap: Debian and Ubuntu write "127.0.1.1 <host name>" into /etc/hosts. On that machine the name resolves to
// loopback, elsewhere to the real address; rank 0 binds the one and the others dial the other. So loopback is the last
// choice for a name, no choice at all where the ranks are known to be on several hosts, and worth a warning where that
// is not known.
#include "tutti/rendezvous/reach_store.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

bool is_v6(const Address& address) { return address.host.find(':') != std::string::npos; }

std::string of_this_machine() { return "this machine has " + join(local_addresses(), ", "); }

std::string hosts_file() {
  std::ifstream file("/etc/hosts");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string loopback_line(const std::string& name, const std::string& hosts_text) {
  int number = 0;
  for (const std::string& line : split(hosts_text, '\n')) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address, word;
    words >> address;
    if (address.empty() || !is_loopback(Address{.host = address})) continue;
    while (words >> word)
      if (word == name) return std::string(trim(line)) + " (line " + std::to_string(number) + " of /etc/hosts)";
  }
  return {};
}

Result<std::vector<Address>> serving_addresses(const Address& wanted, const std::string& source,
                                               Identity::OneHost one_host) {
  const auto usage = [](std::string detail, std::string hint) {
    return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
  };
  std::vector<Address> all = TUTTI_TRY(resolve(wanted));
  const std::string& first = all.front().host;
  const std::string what = wanted.host == first ? first : wanted.host + ", which is " + first + " here";
  if (std::any_of(all.begin(), all.end(), is_wildcard))
    return usage(
        "rank 0 is to serve at " + wanted.host + " (" + source + "), which is no address that the others can dial",
        "give one address; " + of_this_machine());
  std::erase_if(all, [](const Address& address) { return !is_local_address(address.host); });
  if (all.empty())
    return usage(
        "rank 0 is to serve at " + what + " (" + source + "), but that is no address of this machine",
        "start rank 0 on the machine that " + source + " names, or correct " + source + "; " + of_this_machine());
  // Outward before loopback, IPv4 before IPv6: `localhost` must be the same to all.
  std::stable_sort(all.begin(), all.end(), [](const Address& a, const Address& b) {
    return std::pair(is_loopback(a), is_v6(a)) < std::pair(is_loopback(b), is_v6(b));
  });
  if (one_host == Identity::OneHost::kYes || !is_loopback(all.front())) return all;
  const std::string line = loopback_line(wanted.host, hosts_file());
  if (one_host == Identity::OneHost::kNo)
    return usage("rank 0 would advertise the loopback address " + what + " (" + source +
                     "), which the ranks on other hosts cannot reach",
                 (line.empty() ? "give an address" : "change the line \"" + line + "\", or give an address") +
                     " that they can reach; " + of_this_machine());
  if (!line.empty() && wanted.host != "localhost")
    log::warn("rank 0 serves at " + what + ": ranks on other machines cannot reach it, because of the line \"" + line +
              "\"");
  return all;
}

}  // namespace tutti
