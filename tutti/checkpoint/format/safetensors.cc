// Files are read with pread into the caller's memory and never mapped: a file that others change or cut off under a
// mapping would be a SIGBUS, here it is an error.
#include "tutti/checkpoint/format/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian; other machines would have to swap bytes here");

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kReadPiece = std::uint64_t(1) << 20;

std::string checksum_key(std::string_view name) { return "crc32c." + std::string(name); }
std::string checksum_text(std::span<const std::byte> bytes) { return fmt::format("{:08x}", crc32c(bytes)); }

std::span<const std::byte> bytes_of(const SafetensorsTensor& tensor) {
  std::uint64_t count = 1;
  for (auto extent : tensor.shape) count *= extent;
  return {static_cast<const std::byte*>(tensor.data), count * size_of(tensor.dtype)};
}

Status check_name(const std::string& name) {
  const bool control = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!name.empty() && name != "__metadata__" && !control) return {};
  return invalid_argument(
      fmt::format("safetensors: a tensor cannot be named \"{}\"", control ? "(with control characters)" : name));
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = TUTTI_TRY(open_file(path, O_NONBLOCK));
  struct stat status;
  if (::fstat(file.fd_.get(), &status) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(status.st_mode)) return invalid_argument(fmt::format("{} is not a regular file", path));
  auto corrupt = [&](std::string detail) {
    return Error{.code = Code::kCorrupt, .detail = fmt::format("{}: {}", path, detail)};
  };

  const std::uint64_t size = std::uint64_t(status.st_size);
  if (size < 8) return corrupt(fmt::format("{} bytes; a safetensors file has at least 8", size));
  std::uint64_t length = 0;
  TUTTI_TRY(read_all(file.fd_.get(), 0, std::as_writable_bytes(std::span(&length, 1)), path));
  if (length > kMaxHeader)
    return corrupt(fmt::format("claims a header of {} bytes; the format allows {}", length, kMaxHeader));
  if (length > size - 8) return corrupt(fmt::format("claims a header of {} bytes, but the file has {}", length, size));
  std::string json(length, '\0');
  TUTTI_TRY(read_all(file.fd_.get(), 8, std::as_writable_bytes(std::span(json)), path));
  file.data_offset_ = 8 + length;
  auto header = parse_safetensors_header(json, size - file.data_offset_);
  if (!header.ok()) return corrupt(header.error().detail);
  file.header_ = *std::move(header);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::find_if(entries().begin(), entries().end(), [&](const auto& entry) { return entry.name == name; });
  return found == entries().end() ? nullptr : &*found;
}

Status SafetensorsFile::read(const SafetensorsEntry& entry, std::span<std::byte> into) const {
  if (into.size() != entry.bytes()) {
    return invalid_argument(
        fmt::format("{}: {} has {} bytes, the buffer given {}", path_, entry.name, entry.bytes(), into.size()));
  }
  TUTTI_TRY(read_all(fd_.get(), data_offset_ + entry.begin, into, path_));
  return compare_checksum(entry, crc32c(into));
}

Status SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t begin, std::span<std::byte> into) const {
  if (begin > entry.bytes() || into.size() > entry.bytes() - begin)
    return invalid_argument(fmt::format("{}: {} has {} bytes; {} from {} on were wanted", path_, entry.name,
                                        entry.bytes(), into.size(), begin));
  return read_all(fd_.get(), data_offset_ + entry.begin + begin, into, path_);
}

bool SafetensorsFile::has_checksum(const SafetensorsEntry& entry) const {
  return metadata().contains(checksum_key(entry.name));
}

Status SafetensorsFile::check(const SafetensorsEntry& entry) const {
  if (!has_checksum(entry)) return {};
  std::vector<std::byte> piece(std::min(entry.bytes(), kReadPiece));
  std::uint32_t found = 0;
  for (std::uint64_t at = 0; at < entry.bytes(); at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), entry.bytes() - at));
    TUTTI_TRY(read(entry, at, part));
    found = crc32c(part, found);
  }
  return compare_checksum(entry, found);
}

Status SafetensorsFile::compare_checksum(const SafetensorsEntry& entry, std::uint32_t digest) const {
  const auto expected = metadata().find(checksum_key(entry.name));
  if (expected == metadata().end()) return {};
  const std::string found = fmt::format("{:08x}", digest);
  if (found == expected->second) return {};
  const std::uint64_t at = data_offset_ + entry.begin;
  return Error{.code = Code::kCorrupt,
               .detail = fmt::format("{}: bytes {} to {}, of {}, have changed: checksum {}, expected {}", path_, at,
                                     at + entry.bytes(), entry.name, found, expected->second),
               .hint = "take another copy of the file"};
}

Result<std::string> compose_safetensors_header(std::span<const SafetensorsEntry> entries,
                                               const SafetensorsMetadata& metadata) {
  auto json = nlohmann::ordered_json::object();
  json["__metadata__"] = metadata;
  json["__metadata__"].emplace("format", "pt");
  std::set<std::string_view> seen;
  for (const SafetensorsEntry& entry : entries) {
    TUTTI_TRY(check_name(entry.name));
    if (!seen.insert(entry.name).second)
      return invalid_argument(fmt::format("safetensors: two tensors are named \"{}\"", entry.name));
    json[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    return invalid_argument("safetensors: a name or a metadata value is not valid UTF-8");
  }
  text.resize((8 + text.size() + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  if (text.size() > kMaxHeader)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("the header of a safetensors file would take {}; the format allows {}",
                                       bytes_text(text.size()), bytes_text(kMaxHeader))};
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

Status write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                         const SafetensorsMetadata& metadata) {
  std::vector<const SafetensorsTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->dtype) > size_of(b->dtype); });
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata with_checksums = metadata;
  std::uint64_t at = 0;
  for (const auto* tensor : order) {
    TUTTI_TRY(check_name(tensor->name));
    const char* const dtype = safetensors_name(tensor->dtype);
    if (*dtype == '\0')
      return invalid_argument(fmt::format("safetensors: the tensor \"{}\" is {}, which the format does not know",
                                          tensor->name, name(tensor->dtype)),
                              "save the real and the imaginary part as two tensors");
    const auto bytes = bytes_of(*tensor);
    entries.push_back(
        {.name = tensor->name, .dtype = dtype, .shape = tensor->shape, .begin = at, .end = at + bytes.size()});
    with_checksums[checksum_key(tensor->name)] = checksum_text(bytes);
    at += bytes.size();
  }
  const auto header = TUTTI_TRY(compose_safetensors_header(entries, with_checksums));

  return replace_file(path, [&](int fd, const std::string& name) -> Status {
    TUTTI_TRY(write_all(fd, std::as_bytes(std::span(header)), name));
    for (const auto* tensor : order) TUTTI_TRY(write_all(fd, bytes_of(*tensor), name));
    return {};
  });
}

}  // namespace tutti
