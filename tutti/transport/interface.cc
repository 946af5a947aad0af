// An interface has several addresses, and a subnet may hold several of the machine's; the first in the system's order
// counts, the same after each start.
#include "tutti/transport/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct InterfacePlace {
  std::string interface;
  std::string host;
};

bool is_v6(const InterfacePlace& place) { return place.host.find(':') != std::string::npos; }

std::vector<InterfacePlace> places() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<InterfacePlace> result;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr))
      continue;
    result.push_back({entry->ifa_name, from_socket_address(address).host});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const InterfacePlace& a, const InterfacePlace& b) { return is_v6(a) < is_v6(b); });
  return result;
}

// The bytes of a numeric address, 4 or 16; empty for anything else.
std::vector<unsigned char> bytes_of(const std::string& host) {
  const auto address = to_socket_address(Address{.host = host});
  if (!address.ok()) return {};
  const auto bytes = [](const auto& field) {
    const auto* begin = reinterpret_cast<const unsigned char*>(&field);
    return std::vector<unsigned char>(begin, begin + sizeof field);
  };
  if (address->family() == AF_INET) return bytes(reinterpret_cast<const sockaddr_in*>(address->get())->sin_addr);
  return bytes(reinterpret_cast<const sockaddr_in6*>(address->get())->sin6_addr);
}

bool starts_alike(std::span<const unsigned char> a, std::span<const unsigned char> b, int bits) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : 0xff << (8 - bits) & 0xff;
    if ((a[i] ^ b[i]) & mask) return false;
  }
  return true;
}

std::string of_this_machine(const std::vector<InterfacePlace>& all) {
  std::vector<std::string> words;
  for (const InterfacePlace& place : all) words.push_back(place.interface + " (" + place.host + ")");
  return "this machine has " + join(words, ", ");
}

Error usage(std::string detail, const std::vector<InterfacePlace>& all) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = of_this_machine(all)};
}

}  // namespace

Result<std::string> address_at(std::string_view wanted) {
  const auto all = places();
  const auto slash = wanted.find('/');
  if (slash == std::string_view::npos) {
    for (const InterfacePlace& place : all)
      if (place.interface == wanted) return place.host;
    return usage("no interface \"" + std::string(wanted) + "\" is up here with an address", all);
  }
  const auto subnet = bytes_of(std::string(wanted.substr(0, slash)));
  const auto bits = parse_int(wanted.substr(slash + 1));
  if (subnet.empty() || !bits || *bits < 0 || *bits > std::int64_t(subnet.size()) * 8)
    return usage("\"" + std::string(wanted) + "\" is no subnet, which reads 10.0.0.0/8 or fd00::/8", all);
  for (const InterfacePlace& place : all)
    if (starts_alike(bytes_of(place.host), subnet, int(*bits))) return place.host;
  return usage("this machine has no address in " + std::string(wanted), all);
}

}  // namespace tutti
