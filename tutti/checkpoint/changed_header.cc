// A header is a length of 8 bytes and JSON, in which no byte is zero: so zeros are a hole. Which tensor's entry a byte
// belongs to tells the last name before it that an entry follows.
#include "tutti/checkpoint/changed_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "tutti/base/file.h"
#include "tutti/checkpoint/changed_byte.h"
#include "tutti/checkpoint/safetensors.h"

namespace tutti {
namespace {

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
