// The CRC is linear: the two digests differ by what the changed bits alone would give, started from zero. Those are one
// byte e and then zeros; the byte leaves table[e], and each zero takes state s to table[s & 255] ^ (s >> 8). Walked
// backwards, from the end of the run, a state that is some table[e] is the changed byte. The walk is unique: the upper
// bytes of the 256 entries of the table are all different.
#include "tutti/checkpoint/format/digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "tutti/base/file.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {
namespace {

struct Tables {
  std::array<std::uint32_t, 256> entry{};
  std::array<std::uint8_t, 256> by_upper_byte{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) ? 0x82F63B78u : 0);
    tables.entry[byte] = remainder;
    tables.by_upper_byte[remainder >> 24] = std::uint8_t(byte);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

std::optional<ChangedByte> one_changed_byte(std::uint32_t found, std::uint32_t expected, std::uint64_t size) {
  std::uint32_t state = found ^ expected;
  if (state == 0) return {};
  for (std::uint64_t left = size; left > 0; --left) {
    const std::uint8_t byte = kTables.by_upper_byte[state >> 24];
    const std::uint32_t before = state ^ kTables.entry[byte];
    if (before == 0) return ChangedByte{left - 1, byte};
    state = before << 8 | byte;
  }
  return {};
}

namespace {

// A header is a length of 8 bytes and JSON, in which no byte is zero: so zeros are a hole. Which tensor's entry a byte
// belongs to tells the last name before it that an entry follows.

constexpr std::size_t kMarkDigits = 16;
constexpr std::size_t kLength = sizeof(std::uint64_t);
constexpr std::size_t kMostOfAName = 80;
constexpr std::uint64_t kMostRead = 100'000'000;  // no header is longer

std::uint64_t length_in(std::string_view header) {
  std::uint64_t length = 0;
  std::memcpy(&length, header.data(), kLength);
  return length;
}

// The word that all files of one save have in their headers; "": it is no whole header, or has none.
std::string mark_in(std::string_view header, std::uint64_t data_bytes) {
  if (length_in(header) != header.size() - kLength) return "";
  const auto parsed = parse_safetensors_header(header.substr(kLength), data_bytes);
  if (!parsed.ok()) return "";
  const auto mark = parsed->metadata.find("tutti.checkpoint");
  const bool is_one = mark != parsed->metadata.end() && mark->second.size() == kMarkDigits &&
                      mark->second.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_one ? mark->second : "";
}

// ", in the entry of "fc.weight"": in which `place` lies, by the last `"NAME":{` before it.
std::string entry_text(std::string_view header, std::uint64_t place) {
  constexpr std::string_view kOpens = "\":{", kMetadata = "__metadata__";
  const std::size_t opens = header.substr(0, place + 1).rfind(kOpens);
  const std::size_t begin = opens == std::string_view::npos || opens == 0 ? opens : header.rfind('"', opens - 1);
  if (begin == std::string_view::npos || begin < kLength) return ", before the entry of any tensor,";
  std::string name;
  for (const unsigned char c : header.substr(begin + 1, std::min(opens - begin - 1, kMostOfAName)))
    name += c < 0x20 || c == 0x7f ? '?' : char(c);
  return name == kMetadata ? ", before the entry of any tensor," : fmt::format(", in the entry of \"{}\",", name);
}

// The longest run of zeros; behind the length, whose own bytes count where all of them are zeros. Empty: none.
std::string hole_text(std::string_view header) {
  std::uint64_t longest = 0, where = 0, run = 0;
  for (std::uint64_t at = length_in(header) == 0 ? 0 : kLength; at < header.size(); ++at) {
    run = header[at] == '\0' ? run + 1 : 0;
    if (run > longest) longest = run, where = at + 1 - run;
  }
  if (longest == 0 || (where == 0 && longest == kLength)) return "";  // told as a length of 0
  return fmt::format("; bytes {} to {}{} are zeros: a hole?", where, where + longest, entry_text(header, where));
}

}  // namespace

Error changed_header(int fd, const std::string& path, const StoredFile& stored, std::uint32_t digest) {
  Error error{
      .code = Code::kCorrupt,
      .detail = fmt::format("{} has another header than the one that was saved: its digest is {:08x}, expected {:08x}",
                            path, digest, stored.header_crc32c)};
  std::string header(std::min(stored.header_bytes, kMostRead), '\0');
  if (const Status read = read_all(fd, 0, std::as_writable_bytes(std::span(header)), path); !read.ok())
    return read.error();
  if (header.size() < kLength) return error;
  if (length_in(header) != stored.header_bytes - kLength)
    error.detail += fmt::format("; its first {} bytes claim a header of {} bytes, and it has {}", kLength,
                                length_in(header), stored.header_bytes - kLength);
  const auto one = one_changed_byte(digest, stored.header_crc32c, stored.header_bytes);
  if (one && one->place < header.size()) {
    const unsigned is = static_cast<unsigned char>(header[one->place]);
    error.detail += fmt::format("; byte {} alone would explain it{}", one->place,
                                one->place < kLength ? "," : entry_text(header, one->place)) +
                    fmt::format(" were it 0x{:02x} in place of 0x{:02x}", is ^ one->change, is);
    return error;
  }
  const std::string hole = hole_text(header);
  error.detail += hole;
  const std::string mark = hole.empty() ? mark_in(header, stored.bytes - stored.header_bytes) : "";
  if (mark.empty()) return error;
  error.detail += fmt::format(", which no single byte explains; it reads well and bears the mark {} of a save", mark);
  error.hint =
      "is it a file of another step, or of another save of this one? Take all files of a checkpoint from one copy of "
      "it";
  return error;
}

}  // namespace tutti
