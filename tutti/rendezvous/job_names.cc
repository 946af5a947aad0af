// All are functions of one hash. It need not withstand anybody: who lets whom in is for the handshake to say.
#include "tutti/rendezvous/identity.h"

#include <cstdio>

namespace tutti {
namespace {

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string file_name_of(const std::string& job) {
  constexpr std::size_t kPlain = 23;
  std::string plain;
  for (const char c : job) {
    const bool ordinary =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    plain += ordinary ? c : '_';
  }
  if (plain == job && plain.size() <= kPlain + 17 && !plain.empty() && plain.front() != '.') return plain;
  char digits[17];  // they tell apart what replacement and cutting made equal
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash_of(job)));
  return "_" + plain.substr(0, kPlain - 1) + "-" + digits;
}

std::vector<std::uint16_t> derived_ports(const std::string& job) {
  constexpr std::uint32_t kFirst = 20000, kCount = 12000,
                          kStride = 2999;  // the stride and the count have no common factor
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < 4; ++i) ports.push_back(std::uint16_t(kFirst + (hash_of(job) + i * kStride) % kCount));
  return ports;
}

}  // namespace tutti
