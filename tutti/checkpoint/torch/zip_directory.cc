// A zip archive is read from its end: the last record says where the directory is, the directory where each file
// begins, and there its name stands once more before its bytes. In zip64 the last record has an elder brother with
// larger numbers. (The format: APPNOTE.TXT of PKWARE, 4.3.)
#include "tutti/checkpoint/torch/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator64 = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint64_t kMostDirectory = std::uint64_t(256) << 20;
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint16_t kEncrypted = 1, kZip64Field = 1;

Error corrupt_zip(std::string what) {
  return Error{.code = Code::kCorrupt, .detail = "the zip archive " + std::move(what)};
}

template <class T>
T number(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
std::uint16_t u16(std::string_view bytes, std::size_t at) { return number<std::uint16_t>(bytes, at); }
std::uint32_t u32(std::string_view bytes, std::size_t at) { return number<std::uint32_t>(bytes, at); }
std::uint64_t u64(std::string_view bytes, std::size_t at) { return number<std::uint64_t>(bytes, at); }

class Archive {
 public:
  Archive(std::uint64_t bytes, const ReadAt& read) : bytes_(bytes), read_(read) {}

  Result<std::map<std::string, ZipRecord>> records() {
    TUTTI_TRY(find_directory());
    const std::string directory = TUTTI_TRY(text(begin_, size_));
    std::map<std::string, ZipRecord> found;
    std::size_t at = 0;
    for (std::uint64_t n = 0; n < count_; ++n) TUTTI_TRY(add(directory, at, found));
    if (at != directory.size()) return corrupt_zip("has a directory that is longer than its records");
    TUTTI_TRY(check_overlaps(found));
    return found;
  }

 private:
  Result<std::string> text(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_ || size > bytes_ - offset)
      return corrupt_zip(fmt::format("has {} bytes; {} from {} on were to be read", bytes_, size, offset));
    std::string out(size, '\0');
    TUTTI_TRY(read_(offset, std::as_writable_bytes(std::span(out))));
    return out;
  }

  Status find_directory() {
    if (bytes_ < kEndBytes) return corrupt_zip(fmt::format("has {} bytes, fewer than its last record", bytes_));
    const std::uint64_t tail = std::min<std::uint64_t>(bytes_, kEndBytes + 65535);
    const std::string last = TUTTI_TRY(text(bytes_ - tail, tail));
    std::size_t at = last.size() - kEndBytes + 1;
    do {
      if (at-- == 0) return corrupt_zip("has no directory at its end: it was cut off");
    } while (u32(last, at) != kEnd || at + kEndBytes + u16(last, at + 20) != last.size());
    if (u16(last, at + 4) != 0 && u16(last, at + 4) != 0xffff)
      return Error{.code = Code::kUnsupported, .detail = "the zip archive is in several files"};
    count_ = u16(last, at + 10);
    size_ = u32(last, at + 12);
    begin_ = u32(last, at + 16);
    const std::uint64_t end = bytes_ - tail + at;
    if (end >= kLocatorBytes) {
      const std::string locator = TUTTI_TRY(text(end - kLocatorBytes, kLocatorBytes));
      if (u32(locator, 0) == kLocator64) {
        const std::string end64 = TUTTI_TRY(text(u64(locator, 8), kEnd64Bytes));
        if (u32(end64, 0) != kEnd64) return corrupt_zip("has no zip64 record where its locator says");
        count_ = u64(end64, 32);
        size_ = u64(end64, 40);
        begin_ = u64(end64, 48);
      }
    }
    if (size_ > kMostDirectory || begin_ > end || size_ > end - begin_)
      return corrupt_zip(
          fmt::format("says that its directory has {} bytes from {} on; its end is at {}", size_, begin_, end));
    if (count_ > size_ / kCentralBytes)
      return corrupt_zip(fmt::format("says that its directory has {} records in {} bytes", count_, size_));
    return {};
  }

  Status add(const std::string& directory, std::size_t& at, std::map<std::string, ZipRecord>& found) const {
    if (directory.size() - at < kCentralBytes || u32(directory, at) != kCentral)
      return corrupt_zip(fmt::format("has no record at byte {} of its directory", at));
    const std::string_view head = std::string_view(directory).substr(at, kCentralBytes);
    const std::size_t name_bytes = u16(head, 28), extra_bytes = u16(head, 30), comment_bytes = u16(head, 32);
    at += kCentralBytes;
    if (directory.size() - at < name_bytes + extra_bytes + comment_bytes)
      return corrupt_zip("has a directory that ends within a record");
    const std::string name = directory.substr(at, name_bytes);
    const std::string_view extra = std::string_view(directory).substr(at + name_bytes, extra_bytes);
    at += name_bytes + extra_bytes + comment_bytes;
    if ((u16(head, 8) & kEncrypted) != 0)
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("the record {} of the zip archive is encrypted", name)};
    if (u16(head, 10) != 0)
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("the record {} of the zip archive is compressed", name)};
    std::uint64_t stored = u32(head, 20), bytes = u32(head, 24), local = u32(head, 42);
    TUTTI_TRY(widen(extra, bytes, stored, local, name));
    if (stored != bytes)
      return corrupt_zip(
          fmt::format("says that its record {} has {} bytes, and {} of them are there", name, bytes, stored));
    const std::string begin = TUTTI_TRY(text(local, kLocalBytes));
    if (u32(begin, 0) != kLocal) return corrupt_zip(fmt::format("has no record {} where its directory says", name));
    const std::uint64_t inner_name = u16(begin, 26), inner_extra = u16(begin, 28);
    if (TUTTI_TRY(text(local + kLocalBytes, inner_name)) != name)
      return corrupt_zip(fmt::format("has another record where its directory says that {} is", name));
    const ZipRecord record{local + kLocalBytes + inner_name + inner_extra, bytes, u32(head, 16)};
    if (record.offset > begin_ || bytes > begin_ - record.offset)
      return corrupt_zip(
          fmt::format("says that its record {} has {} bytes from {} on, beyond its end", name, bytes, record.offset));
    if (!found.emplace(name, record).second) return corrupt_zip(fmt::format("has two records {}", name));
    return {};
  }

  // The numbers of zip64 stand in an extra field, in this order, those that did not fit.
  static Status widen(std::string_view extra, std::uint64_t& bytes, std::uint64_t& stored, std::uint64_t& local,
                      const std::string& name) {
    while (extra.size() >= 4) {
      const std::size_t size = u16(extra, 2);
      if (size > extra.size() - 4) break;
      if (u16(extra, 0) == kZip64Field) {
        std::string_view field = extra.substr(4, size);
        for (std::uint64_t* value : {&bytes, &stored, &local}) {
          if (*value != kIn64) continue;
          if (field.size() < 8) return corrupt_zip(fmt::format("has a record {} without its size", name));
          *value = u64(field, 0);
          field.remove_prefix(8);
        }
        return {};
      }
      extra.remove_prefix(4 + size);
    }
    return {};
  }

  static Status check_overlaps(const std::map<std::string, ZipRecord>& found) {
    std::vector<std::pair<const std::string*, const ZipRecord*>> order;
    for (const auto& [name, record] : found) order.emplace_back(&name, &record);
    std::sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second->offset < b.second->offset; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].second->offset + order[i - 1].second->bytes > order[i].second->offset)
        return corrupt_zip(fmt::format("has records {} and {} that overlap", *order[i - 1].first, *order[i].first));
    return {};
  }

  const std::uint64_t bytes_;
  const ReadAt& read_;
  std::uint64_t count_ = 0, size_ = 0, begin_ = 0;  // of the directory
};

}  // namespace

Result<std::map<std::string, ZipRecord>> read_zip_directory(std::uint64_t file_bytes, const ReadAt& read) {
  return Archive(file_bytes, read).records();
}

}  // namespace tutti
