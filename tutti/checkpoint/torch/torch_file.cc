// The zip archive: NAME/data.pkl is the pickle, NAME/data/KEY a storage, NAME/byteorder says "little". The older
// format: the pickles of a magic number, of a version, of what the machine was, of the object, of a list of keys; then
// for each key eight bytes with the number of elements, and the elements.
#include "tutti/checkpoint/torch/torch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "tutti/base/file.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/torch/pickle_names.h"
#include "tutti/checkpoint/torch/zip_directory.h"

namespace tutti {
namespace {

using ObjectKind = PickleNode::Kind;

constexpr std::uint64_t kMostPickle = std::uint64_t(256) << 20, kFirstWindow = std::uint64_t(1) << 20;
constexpr std::uint64_t kStoragePiece = std::uint64_t(1) << 20;
constexpr std::string_view kZipBegins("PK\x03\x04", 4);
// PROTO 2, LONG1 of ten bytes: 0x1950a86a20f9469cfc6c
constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

struct TypeRow {
  std::string_view torch, safetensors;
};
constexpr TypeRow kStorageTypes[] = {
    {"DoubleStorage", "F64"},
    {"FloatStorage", "F32"},
    {"HalfStorage", "F16"},
    {"BFloat16Storage", "BF16"},
    {"LongStorage", "I64"},
    {"IntStorage", "I32"},
    {"ShortStorage", "I16"},
    {"CharStorage", "I8"},
    {"ByteStorage", "U8"},
    {"BoolStorage", "BOOL"},
    {"ComplexFloatStorage", "C64"},
    {"ComplexDoubleStorage", "C128"},
    {"UntypedStorage", "U8"},
    {"float64", "F64"},
    {"float32", "F32"},
    {"float16", "F16"},
    {"bfloat16", "BF16"},
    {"int64", "I64"},
    {"int32", "I32"},
    {"int16", "I16"},
    {"int8", "I8"},
    {"uint8", "U8"},
    {"uint16", "U16"},
    {"uint32", "U32"},
    {"uint64", "U64"},
    {"bool", "BOOL"},
    {"complex64", "C64"},
    {"complex128", "C128"},
    {"float8_e4m3fn", "F8_E4M3"},
    {"float8_e5m2", "F8_E5M2"},
    {"float8_e8m0fnu", "F8_E8M0"},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ"},
};

}  // namespace

std::string dtype_of_torch(const std::string& name) {
  const std::string_view last = std::string_view(name).substr(name.rfind('.') + 1);
  const auto* const row =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes), [&](auto& r) { return r.torch == last; });
  return row == std::end(kStorageTypes) ? "" : std::string(row->safetensors);
}

std::uint64_t element_bytes_of(const std::string& dtype) { return dtype == "C128" ? 16 : safetensors_bits(dtype) / 8; }

bool TorchFile::begins_like_one(std::string_view beginning) {
  return beginning.starts_with(kZipBegins) || beginning.starts_with(kMagic);
}

Error TorchFile::corrupt(std::string what) const {
  return Error{.code = Code::kCorrupt, .detail = fmt::format("{}: {}", path_, what)};
}

Result<std::unique_ptr<TorchFile>> TorchFile::open(const std::string& path) {
  auto file = std::make_unique<TorchFile>();
  file->path_ = path;
  file->fd_ = TUTTI_TRY(open_file(path, O_NONBLOCK));
  struct stat info {};
  if (::fstat(file->fd_.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("{} is not a regular file", path));
  const auto bytes = std::uint64_t(info.st_size);
  std::string begin(std::min<std::uint64_t>(bytes, kZipBegins.size()), '\0');
  TUTTI_TRY(read_all(file->fd_.get(), 0, std::as_writable_bytes(std::span(begin)), path));
  const Status opened = begin == kZipBegins ? file->open_zip(bytes) : file->open_old(bytes);
  if (opened.ok()) return file;
  Error error = opened.error();
  if (!error.detail.starts_with(path)) error.detail = fmt::format("{}: {}", path, error.detail);
  return error;
}

Status TorchFile::open_zip(std::uint64_t bytes) {
  const auto records = TUTTI_TRY(read_zip_directory(bytes, [&](std::uint64_t offset, std::span<std::byte> into) {
    return read_all(fd_.get(), offset, into, path_);
  }));
  has_digests_ = std::any_of(records.begin(), records.end(), [](auto& record) { return record.second.crc32 != 0; });
  std::string root;
  for (const auto& [name, record] : records)
    if (const std::size_t at = name.find('/'); at != std::string::npos && name.substr(at) == "/data.pkl")
      root = name.substr(0, at + 1);
  if (root.empty()) return corrupt("the archive has no data.pkl: torch.save() did not write it");
  for (const auto& [name, record] : records) {
    auto storage = std::make_unique<Storage>();
    storage->record = name;
    storage->offset = record.offset;
    storage->bytes = record.bytes;
    storage->crc32 = record.crc32;
    storages_.emplace(name, std::move(storage));
  }
  const auto text_of = [&](const std::string& name, std::uint64_t most) -> Result<std::string> {
    const std::uint64_t size = TUTTI_TRY(storage_bytes(name));
    if (size > most) return corrupt(fmt::format("its record {} has {} bytes; {} are read", name, size, most));
    std::string text(size, '\0');
    TUTTI_TRY(read(name, 0, std::as_writable_bytes(std::span(text))));
    return text;
  };
  if (records.contains(root + "byteorder") && TUTTI_TRY(text_of(root + "byteorder", 64)) != "little")
    return Error{.code = Code::kUnsupported, .detail = "it was written on a big-endian machine"};
  pickle_ = TUTTI_TRY(parse_pickle(TUTTI_TRY(text_of(root + "data.pkl", kMostPickle))));
  // From here on storages are named by their keys.
  std::map<std::string, std::unique_ptr<Storage>> by_key;
  for (auto& [name, storage] : storages_)
    if (name.starts_with(root + "data/")) by_key.emplace(name.substr(root.size() + 5), std::move(storage));
  storages_ = std::move(by_key);
  return {};
}

// Its end is where its STOP is: read more, until that is there.
Result<Pickle> TorchFile::parse_at(std::uint64_t offset, std::uint64_t file_bytes) const {
  for (std::uint64_t window = kFirstWindow;; window *= 4) {
    std::string text(std::min({window, file_bytes - offset, kMostPickle}), '\0');
    TUTTI_TRY(read_all(fd_.get(), offset, std::as_writable_bytes(std::span(text)), path_));
    auto parsed = parse_pickle(text);
    const bool all = text.size() == file_bytes - offset || text.size() == kMostPickle;
    if (parsed.ok() || all || parsed.error().code != Code::kCorrupt) return parsed;
  }
}

Status TorchFile::open_old(std::uint64_t bytes) {
  std::uint64_t at = kMagic.size();
  if (bytes < at) return corrupt("it was cut off");
  at += TUTTI_TRY(parse_at(at, bytes)).bytes;  // the version
  const Pickle machine = TUTTI_TRY(parse_at(at, bytes));
  at += machine.bytes;
  const PickleNode* const little = pickle_member(machine, machine[machine.root], "little_endian");
  if (!little || little->whole == 0)
    return Error{.code = Code::kUnsupported, .detail = "it was written on a big-endian machine"};
  pickle_ = TUTTI_TRY(parse_at(at, bytes));
  at += pickle_.bytes;
  std::map<std::string, std::uint64_t> element;
  for (const PickleNode& node : pickle_.nodes) {
    if (node.kind != ObjectKind::kStored || node.items.size() < 5) continue;
    if (node.items.size() > 5 && pickle_[node.items[5]].kind != ObjectKind::kNone)
      return Error{.code = Code::kUnsupported,
                   .detail = "it has storages that are views of others, as before PyTorch 0.4"};
    const std::string& type = pickle_[node.items[1]].text;
    const std::uint64_t bytes_of_one = element_bytes_of(dtype_of_torch(type));
    if (bytes_of_one == 0)
      return Error{
          .code = Code::kUnsupported,
          .detail = fmt::format("it has a storage of type {}, which is not among what is read", printable(type))};
    element[pickle_[node.items[2]].text] = bytes_of_one;
  }
  const Pickle keys = TUTTI_TRY(parse_at(at, bytes));
  at += keys.bytes;
  for (const std::uint32_t number : keys[keys.root].items) {
    const std::string& key = keys[number].text;
    std::uint64_t elements = 0, size = 0;
    if (bytes - at < sizeof elements) return corrupt(fmt::format("it ends before the storage {}: it was cut off", key));
    TUTTI_TRY(read_all(fd_.get(), at, std::as_writable_bytes(std::span(&elements, 1)), path_));
    at += sizeof elements;
    if (__builtin_mul_overflow(elements, element[key], &size) || size > bytes - at)
      return corrupt(
          fmt::format("the storage {} has {} elements, which reach beyond the end: it was cut off", key, elements));
    auto storage = std::make_unique<Storage>();
    storage->record = key;
    storage->offset = at;
    storage->bytes = size;
    storages_[key] = std::move(storage);
    at += size;
  }
  if (at != bytes) return corrupt(fmt::format("its storages end at byte {}, but it has {}", at, bytes));
  return {};
}

Result<std::uint64_t> TorchFile::storage_bytes(const std::string& key) const {
  const auto found = storages_.find(key);
  if (found == storages_.end()) return corrupt(fmt::format("there is no storage {}", key));
  return found->second->bytes;
}

Status TorchFile::check(Storage& storage) const {
  const MutexLock lock(storage.mutex);
  if (storage.checked || !has_digests_) return {};
  std::vector<std::byte> piece(std::min(storage.bytes, kStoragePiece));
  uLong found = ::crc32(0, nullptr, 0);
  for (std::uint64_t at = 0; at < storage.bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), storage.bytes - at));
    TUTTI_TRY(read_all(fd_.get(), storage.offset + at, part, path_));
    found = ::crc32(found, reinterpret_cast<const Bytef*>(part.data()), uInt(part.size()));
  }
  if (found != storage.crc32)
    return corrupt(
        fmt::format("bytes {} to {}, of its record {}, have changed: their CRC-32 is {:08x}, expected {:08x}",
                    storage.offset, storage.offset + storage.bytes, storage.record, found, storage.crc32));
  storage.checked = true;
  return {};
}

Status TorchFile::read(const std::string& key, std::uint64_t begin, std::span<std::byte> into) const {
  const auto found = storages_.find(key);
  if (found == storages_.end()) return corrupt(fmt::format("there is no storage {}", key));
  Storage& storage = *found->second;
  if (begin > storage.bytes || into.size() > storage.bytes - begin)
    return corrupt(fmt::format("its record {} has {} bytes; {} from {} on were wanted", storage.record, storage.bytes,
                               into.size(), begin));
  TUTTI_TRY(check(storage));
  return read_all(fd_.get(), storage.offset + begin, into, path_);
}

}  // namespace tutti
