// Addresses as people write them, as the resolver returns them, and as the kernel wants them.
//
// A host is *numeric* (it names one interface) or a *name* (it may stand for several, and for different ones on
// different machines: Debian maps a machine's own name to 127.0.1.1). Sockets are only ever bound and connected to
// numeric addresses; resolve() is the one place where names turn into numbers.
#include "tutti/transport/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/fd.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::transport {
namespace {

constexpr double kWorthTelling = 2;  // seconds that the system took for a name

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// getaddrinfo's code, or 0 and the list.
int look_up(const Address& address, int flags, AddressList& list) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  list.reset(found);
  return code;
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

Error bad_text(std::string_view text, const std::string& why) {
  return invalid_argument("\"" + std::string(text) + "\" is not an address: " + why,
                          "write HOST:PORT, [IPV6]:PORT or unix:/PATH, for example 10.0.0.7:29500");
}

Result<std::uint16_t> parse_port(std::string_view whole, std::string_view port) {
  const auto number = parse_int(port);
  if (!number || *number < 0 || *number > 65535)
    return bad_text(whole, "the port \"" + std::string(port) + "\" is not a number from 0 to 65535");
  return std::uint16_t(*number);
}

}  // namespace

Result<Address> parse_address(std::string_view text, std::uint16_t default_port) {
  const std::string_view whole = text = trim(text);
  if (text.empty()) return bad_text(whole, "it is empty");
  if (text.starts_with("unix:")) {
    text.remove_prefix(5);
    if (text.empty()) return bad_text(whole, "the path is missing");
    return Address{.path = std::string(text)};
  }
  Address address{.port = default_port};
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos) return bad_text(whole, "the closing ] is missing");
    address.host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.empty()) {
      if (text.front() != ':') return bad_text(whole, "after ] comes :PORT");
      address.port = TUTTI_TRY(parse_port(whole, text.substr(1)));
    }
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    const auto colon = text.find(':');
    address.host = text.substr(0, colon);
    address.port = TUTTI_TRY(parse_port(whole, text.substr(colon + 1)));
  } else {
    address.host = text;  // no colon, or the many of a bare IPv6 address
  }
  if (address.host.empty()) return bad_text(whole, "the host is missing");
  if (address.host == "unix") return bad_text(whole, "the path is missing");  // printed, it would read as one
  if (address.host.find_first_of(" \t/@[]") != std::string::npos)
    return bad_text(whole, "a host name cannot contain these characters");
  if (address.is_v6() && !to_socket_address(address).ok())
    return bad_text(whole, "\"" + address.host + "\" is not an IPv6 address");
  return address;
}

std::string to_string(const Address& address) {
  if (address.is_unix()) return "unix:" + address.path;
  if (address.host.empty()) return "an unnamed local socket";
  return (address.is_v6() ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Result<SocketAddress> to_socket_address(const Address& address) {
  SocketAddress result;
  if (address.is_unix()) {
    auto* un = reinterpret_cast<sockaddr_un*>(&result.storage);
    un->sun_family = AF_UNIX;
    if (address.path.size() >= sizeof(un->sun_path))
      return invalid_argument("the path of a Unix socket has " + std::to_string(address.path.size()) +
                                  " bytes, the system allows " + std::to_string(sizeof(un->sun_path) - 1) + ": " +
                                  address.path,
                              "choose a shorter folder, for example through XDG_RUNTIME_DIR or TMPDIR");
    std::memcpy(un->sun_path, address.path.c_str(), address.path.size() + 1);
    result.length = socklen_t(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
    if (!is_abstract(address)) return result;
    un->sun_path[0] = '\0';
    result.length -= 1;  // all bytes of the length belong to the name
    return result;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  if (::inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    result.length = sizeof(sockaddr_in);
    return result;
  }
  AddressList list;  // IPv6, perhaps with a scope (fe80::1%eth0), which inet_pton does not read
  if (look_up(address, AI_NUMERICHOST, list) != 0 || !list)
    return invalid_argument("\"" + address.host + "\" is not a numeric address");
  std::memcpy(&result.storage, list->ai_addr, list->ai_addrlen);
  result.length = list->ai_addrlen;
  return result;
}

Address from_socket_address(const SocketAddress& from) {
  Address address;
  if (from.family() == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&from.storage);
    const std::size_t size =
        from.length > offsetof(sockaddr_un, sun_path) ? from.length - offsetof(sockaddr_un, sun_path) : 0;
    if (size > 1 && un->sun_path[0] == '\0')
      address.path = "@" + std::string(un->sun_path + 1, size - 1);
    else
      address.path.assign(un->sun_path, strnlen(un->sun_path, size));
    return address;
  }
  char host[NI_MAXHOST];
  if (::getnameinfo(from.get(), from.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0) address.host = host;
  if (from.family() == AF_INET) address.port = ntohs(reinterpret_cast<const sockaddr_in*>(&from.storage)->sin_port);
  if (from.family() == AF_INET6) address.port = ntohs(reinterpret_cast<const sockaddr_in6*>(&from.storage)->sin6_port);
  return address;
}

Result<std::vector<Address>> resolve(const Address& address) {
  if (address.is_unix() || to_socket_address(address).ok()) return std::vector<Address>{address};
  AddressList list;
  const auto begin = now();
  const int code = look_up(address, 0, list);
  const double took = seconds_since(begin);
  const std::string after = took >= kWorthTelling ? " after " + seconds_text(took) : "";
  if (code != 0) {
    // A bare container or chroot has no /etc/hosts; this one name means the same everywhere (RFC 6761).
    if (address.host == "localhost")
      return std::vector<Address>{{.host = "127.0.0.1", .port = address.port, .path = {}}};
    const int errno_value = code == EAI_SYSTEM ? errno : 0;
    return Error{.code = Code::kUnreachable,
                 .detail = "cannot find the address of host \"" + address.host + "\"" +
                           (errno_value ? after : std::string(" (") + ::gai_strerror(code) + after + ")"),
                 .hint = code == EAI_AGAIN
                             ? "no name server answers (/etc/resolv.conf on this machine): write the host "
                               "into /etc/hosts, or give a numeric address"
                             : "check its spelling, DNS and /etc/hosts on this machine, or give a "
                               "numeric address",
                 .errno_value = errno_value};
  }
  if (took >= kWorthTelling)
    log::warn("the address of host \"" + address.host + "\" came" + after +
              ": the name servers of /etc/resolv.conf on this machine are slow; a line in /etc/hosts avoids the wait");
  std::vector<Address> found;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    SocketAddress socket_address;
    std::memcpy(&socket_address.storage, entry->ai_addr, entry->ai_addrlen);
    socket_address.length = entry->ai_addrlen;
    Address numeric = from_socket_address(socket_address);
    if (!numeric.host.empty() && std::find(found.begin(), found.end(), numeric) == found.end())
      found.push_back(std::move(numeric));
  }
  return found;
}

bool is_loopback(const Address& numeric) {
  if (numeric.is_unix()) return true;
  const auto socket_address = to_socket_address(numeric);
  if (!socket_address.ok()) return false;
  if (socket_address->family() == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&socket_address->storage)->sin_addr.s_addr) >> 24) == 127;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&socket_address->storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool is_wildcard(const Address& numeric) {
  const auto socket_address = to_socket_address(numeric);
  if (numeric.is_unix() || !socket_address.ok()) return false;
  if (socket_address->family() == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&socket_address->storage)->sin_addr.s_addr == htonl(INADDR_ANY);
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&socket_address->storage)->sin6_addr;
  constexpr std::uint8_t kMapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // ::ffff:0.0.0.0
  return IN6_IS_ADDR_UNSPECIFIED(&v6) || std::memcmp(&v6, kMapped, sizeof kMapped) == 0;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto host_of = [&](const sockaddr* from) {
      SocketAddress address;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, from, address.length);
      address.storage.ss_family = sa_family_t(family);  // some systems leave it out of a mask
      return from_socket_address(address).host;
    };
    int prefix = 0;
    if (entry->ifa_netmask != nullptr)
      for (const unsigned char byte : bytes_of(host_of(entry->ifa_netmask))) prefix += std::popcount(byte);
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
    all.push_back({.interface = entry->ifa_name,
                   .host = host_of(entry->ifa_addr),
                   .prefix = prefix,
                   .is_link_local = family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)});
  }
  return all;
}

bool in_subnet_of(const InterfaceAddress& address, const std::string& host) {
  const auto bytes = bytes_of(host);
  return !bytes.empty() && starts_alike(bytes_of(address.host), bytes, address.prefix);
}

std::vector<std::string> local_addresses() {
  std::vector<std::string> outward, loopback;
  for (const InterfaceAddress& here : interface_addresses()) {
    auto& list = is_loopback(Address{.host = here.host}) ? loopback : outward;
    if (std::find(list.begin(), list.end(), here.host) == list.end()) list.push_back(here.host);
  }
  outward.insert(outward.end(), loopback.begin(), loopback.end());
  return outward;
}

bool is_local_address(const std::string& numeric_host) {
  const auto socket_address = to_socket_address(Address{.host = numeric_host});
  if (!socket_address.ok()) return false;
  // The kernel knows best: all of 127/8 is local without being listed at any interface.
  const Fd probe(::socket(socket_address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe && ::bind(probe.get(), socket_address->get(), socket_address->length) == 0;
}

// ---- the address at an interface or in a subnet ----

namespace {

bool is_v6(const InterfaceAddress& address) { return address.host.find(':') != std::string::npos; }

Error interface_usage(std::string detail, const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> texts;
  for (const InterfaceAddress& here : all) texts.push_back(here.interface + " (" + here.host + ")");
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = "this machine has " + join(texts, ", ")};
}

}  // namespace

Result<std::string> address_at(std::string_view wanted) { return address_at(wanted, interface_addresses()); }

Result<std::string> address_at(std::string_view wanted, std::vector<InterfaceAddress> all) {
  std::erase_if(all, [](const InterfaceAddress& here) { return here.is_link_local; });
  std::stable_sort(all.begin(), all.end(),
                   [](const InterfaceAddress& a, const InterfaceAddress& b) { return is_v6(a) < is_v6(b); });
  const auto slash = wanted.find('/');
  if (slash == std::string_view::npos) {
    for (const InterfaceAddress& here : all)
      if (here.interface == wanted) return here.host;
    return interface_usage("no interface \"" + std::string(wanted) + "\" is up here with an address", all);
  }
  const auto subnet = bytes_of(std::string(wanted.substr(0, slash)));
  const auto bits = parse_int(wanted.substr(slash + 1));
  if (subnet.empty() || !bits || *bits < 0 || *bits > std::int64_t(subnet.size()) * 8)
    return interface_usage("\"" + std::string(wanted) + "\" is not a subnet such as 10.0.0.0/8 or fd00::/8", all);
  for (const InterfaceAddress& here : all)
    if (starts_alike(bytes_of(here.host), subnet, int(*bits))) return here.host;
  return interface_usage("this machine has no address in " + std::string(wanted), all);
}

std::string interface_towards(const std::string& host) {
  const auto found = resolve({.host = host, .port = 9});  // any port: nothing is sent
  if (!found.ok() || found->empty()) return {};
  const auto target = to_socket_address(found->front());
  if (!target.ok()) return {};
  const Fd probe(::socket(target->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress own;
  if (!probe || ::connect(probe.get(), target->get(), target->length) != 0 ||
      ::getsockname(probe.get(), own.get(), &own.length) != 0)
    return {};
  const Address here = from_socket_address(own);
  if (is_loopback(here)) return {};
  for (const InterfaceAddress& one : interface_addresses())
    if (one.host == here.host) return one.interface;
  return {};
}

bool is_abstract(const Address& address) { return address.path.starts_with('@'); }

Address new_abstract_address() {
  std::random_device random;
  char name[40];
  std::snprintf(name, sizeof name, "@tutti-%08x%08x%08x", random(), random(), random());
  return Address{.path = name};
}

}  // namespace tutti::transport
