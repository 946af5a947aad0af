// Bytes of others: each number is checked before anything is computed from it, and the checksum before any is believed.
// The size of the file is the last thing to be checked, because it tells a cut-off file from a damaged one.
#include "tutti/data/clicks/packed_format.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr char kClickMagic[] = "tutticlk";
constexpr std::uint32_t kClickVersion = 1;
constexpr std::size_t kFixed = 40, kPage = 4096;
constexpr std::uint32_t kMostColumns = 1 << 16, kMostBlock = 1 << 24;

std::uint64_t bytes_before_checksum(std::uint64_t days, std::uint64_t tables) {
  return kFixed + 8 * (days + 1 + tables);
}

std::uint64_t header_bytes_of(std::uint64_t days, std::uint64_t tables) {
  return (bytes_before_checksum(days, tables) + 4 + kPage - 1) / kPage * kPage;
}

template <class T>
void put(std::vector<std::uint8_t>& bytes, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) bytes.push_back(std::uint8_t(value >> (8 * i)));
}

template <class T>
T get(std::span<const std::uint8_t> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value |= T(bytes[at + i]) << (8 * i);
  return value;
}

std::uint32_t checksum(std::span<const std::uint8_t> bytes) {
  return std::uint32_t(::crc32(0, bytes.data(), unsigned(bytes.size())));
}

Error corrupt_clicks(std::string detail, std::string hint = {}) {
  return {.code = Code::kCorrupt, .detail = std::move(detail), .hint = std::move(hint)};
}

}  // namespace

std::vector<std::uint64_t> day_begins(std::uint64_t samples, std::uint64_t days) {
  std::vector<std::uint64_t> begins{0};
  for (std::uint64_t day = 0; day < days; ++day)
    begins.push_back(begins.back() + samples / days + (day < samples % days ? 1 : 0));
  return begins;
}

PackedLayout::PackedLayout(const PackedHeader& header)
    : samples_(header.samples),
      block_samples_(header.block_samples),
      dense_features_(header.dense_features),
      sample_bytes_(header.sample_bytes()),
      header_bytes_(header_bytes_of(header.days(), header.rows.size())) {}

std::uint64_t PackedLayout::block_size(std::uint64_t block) const {
  return std::min(block_samples_, samples_ - block_begin(block));
}

std::vector<std::uint8_t> encode(const PackedHeader& header) {
  const std::uint64_t size = header_bytes_of(header.days(), header.rows.size());
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes.push_back(std::uint8_t(kClickMagic[i]));
  put(bytes, kClickVersion);
  put(bytes, std::uint32_t(size));
  put(bytes, header.samples);
  put(bytes, header.dense_features);
  put(bytes, std::uint32_t(header.rows.size()));
  put(bytes, header.block_samples);
  put(bytes, std::uint32_t(header.days()));
  for (const std::uint64_t begin : header.day_begins) put(bytes, begin);
  for (const std::uint64_t rows : header.rows) put(bytes, rows);
  put(bytes, checksum(bytes));
  bytes.resize(size);
  return bytes;
}

Result<PackedHeader> decode_packed_header(std::span<const std::uint8_t> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < 8 || std::memcmp(bytes.data(), kClickMagic, 8) != 0)
    return corrupt_clicks(
        fmt::format("it does not begin with '{}', so it is no packed click file", kClickMagic),
        "`tutti data criteo` and `tutti data clicks` make them; one without a beginning was not finished");
  const auto cut_off = [&](std::uint64_t wanted) {
    return corrupt_clicks(fmt::format("it is cut off: {} of {} bytes are there", file_bytes, wanted),
                          "copy it again, or make it again");
  };
  if (bytes.size() < kFixed) return cut_off(kPage);
  const auto version = get<std::uint32_t>(bytes, 8), size = get<std::uint32_t>(bytes, 12);
  if (version != kClickVersion)
    return corrupt_clicks(fmt::format("it is of version {}, and this program reads {}", version, kClickVersion));
  PackedHeader header{.samples = get<std::uint64_t>(bytes, 16),
                      .dense_features = get<std::uint32_t>(bytes, 24),
                      .block_samples = get<std::uint32_t>(bytes, 32)};
  const auto tables = get<std::uint32_t>(bytes, 28), days = get<std::uint32_t>(bytes, 36);
  if (header.dense_features > kMostColumns || tables > kMostColumns || days > kMostColumns || days == 0 ||
      header.block_samples == 0 || header.block_samples > kMostBlock || header.samples > std::uint64_t(1) << 48 ||
      size != header_bytes_of(days, tables) || size > kMostHeaderBytes)
    return corrupt_clicks(
        fmt::format("its header is damaged: {} samples, {} dense features, {} tables, blocks of {}, {} days, "
                    "{} bytes of header",
                    header.samples, header.dense_features, tables, header.block_samples, days, size));
  const std::uint64_t checked = bytes_before_checksum(days, tables);
  if (bytes.size() < checked + 4) return cut_off(size);
  const auto expected = get<std::uint32_t>(bytes, checked), found = checksum(bytes.first(checked));
  if (expected != found)
    return corrupt_clicks(fmt::format("its header is damaged: its checksum is {:08x}, not {:08x}", found, expected));
  for (std::size_t day = 0; day <= days; ++day)
    header.day_begins.push_back(get<std::uint64_t>(bytes, kFixed + 8 * day));
  for (std::size_t table = 0; table < tables; ++table)
    header.rows.push_back(get<std::uint64_t>(bytes, kFixed + 8 * (days + 1 + table)));
  if (header.day_begins.front() != 0 || header.day_begins.back() != header.samples ||
      !std::is_sorted(header.day_begins.begin(), header.day_begins.end()))
    return corrupt_clicks(fmt::format("its days do not ascend from 0 to its {} samples", header.samples));
  if (std::any_of(header.rows.begin(), header.rows.end(),
                  [](std::uint64_t rows) { return rows > std::uint64_t(1) << 32; }))
    return corrupt_clicks("a table has more than 2^32 rows");
  const std::uint64_t whole = PackedLayout(header).file_bytes();
  if (file_bytes < whole) return cut_off(whole);
  if (file_bytes > whole)
    return corrupt_clicks(fmt::format("it has {} bytes behind the last sample", file_bytes - whole), "make it again");
  return header;
}

}  // namespace tutti
