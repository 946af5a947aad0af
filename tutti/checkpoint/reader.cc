// A box is read from all stored boxes that it has something in common with, each through its runs. Before a checkpoint
// is given out, its manifest, and the names, sizes and headers of its files are looked at, and by default every byte of
// it: a program that has begun to load should not find out in the middle that it cannot.
#include "tutti/checkpoint/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/stored_bytes.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostManifest = std::uint64_t(1) << 30;
constexpr std::size_t kMostNamed = 20;
constexpr std::string_view kBetweenPaths("\0", 1);

// Opens a file of the checkpoint and looks at its size and header.
Result<Fd> open_file(const std::string& path, const StoredFile& stored) {
  auto corrupt = [&](std::string detail) {
    return Error{.code = Code::kCorrupt, .detail = fmt::format("{} {}", path, detail)};
  };
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return corrupt("is missing");
  if (!fd && errno == ELOOP) return corrupt("is a link, where the checkpoint has a file");
  if (!fd) return system_error(errno, fmt::format("cannot open {}", path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return corrupt("is no regular file");
  if (std::uint64_t(info.st_size) != stored.bytes)
    return corrupt(
        fmt::format("has {} bytes; the manifest says {}: it was cut off or added to", info.st_size, stored.bytes));
  std::vector<std::byte> piece(std::min(stored.header_bytes, kChunkBytes));
  std::uint32_t digest = 0;
  for (std::uint64_t at = 0; at < stored.header_bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), stored.header_bytes - at));
    TUTTI_TRY(read_all(fd.get(), at, part, path));
    digest = crc32c(part, digest);
  }
  if (digest != stored.header_crc32c)
    return corrupt(fmt::format("has another header than the one that was saved: its digest is {:08x}, expected {:08x}",
                               digest, stored.header_crc32c));
  return fd;
}

std::string named(const std::vector<std::string>& names) {
  std::string out = join(std::span(names).first(std::min(names.size(), kMostNamed)), ", ");
  if (names.size() > kMostNamed) out += fmt::format(" and {} more", names.size() - kMostNamed);
  return out;
}

// Where to look for checkpoints, the best first.
Result<std::vector<std::string>> candidates(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const bool is_one = fs::exists(path + "/" + kManifestName, error);
  const bool is_named_so = step_of_folder(fs::path(path).filename().string()).has_value();
  if (is_one || is_named_so) return std::vector<std::string>{path};
  const auto found = TUTTI_TRY(list_checkpoints(path));
  if (found.empty())
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("there is no checkpoint in {}", path),
                 .hint = "give a folder with step-... folders in it, or one of those"};
  std::vector<std::string> paths;
  for (const CheckpointFolder& one : found) paths.insert(paths.begin(), one.path);
  return paths;
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open_one(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  const std::string path = folder + "/" + kManifestName;
  auto text = read_file(path, kMostManifest);
  if (!text.ok() && text.error().errno_value == ENOENT)
    return Error{.code = Code::kCorrupt, .detail = fmt::format("{} is missing", path)};
  if (!text.ok()) return text.error();
  auto manifest = parse_manifest(*text);
  if (!manifest.ok()) {
    Error error = manifest.error();
    error.detail = fmt::format("{}: {}", path, error.detail);
    return error;
  }
  reader.manifest_ = *std::move(manifest);
  for (const StoredFile& file : reader.manifest_.files)
    reader.files_.push_back(TUTTI_TRY(open_file(folder + "/" + file.name, file)));
  return reader;
}

// On all ranks of `group`, each with its part of the bytes.
Result<CheckpointReader> CheckpointReader::open_whole(const Group& group, const std::string& folder,
                                                      VerifyLevel level) {
  auto reader = open_one(folder);
  Status good = reader.status();
  if (good.ok() && level == VerifyLevel::kAll)
    good = reader->verify(group ? std::uint64_t(group.rank()) : 0, group ? std::uint64_t(group.size()) : 1);
  TUTTI_TRY(agree(group, good));
  return reader;
}

Result<CheckpointReader> CheckpointReader::open(const Group& group, const std::string& path, VerifyLevel level) {
  try {
    // Rank 0 looks what is there, so that all look at the same.
    auto found = !group || group.rank() == 0 ? candidates(path) : std::vector<std::string>();
    TUTTI_TRY(agree(group, found.status()));
    std::string list = join(*found, kBetweenPaths);
    if (group) broadcast_bytes(group, list);
    std::vector<std::string> passed_over;
    Error last;
    for (const std::string& folder : split(list, kBetweenPaths[0])) {
      auto reader = open_whole(group, folder, level);
      if (group) TUTTI_TRY(group.status());
      if (reader.ok()) {
        reader->passed_over_ = std::move(passed_over);
        return reader;
      }
      last = reader.error();
      passed_over.push_back(to_string(last));
    }
    if (passed_over.size() == 1) return last;
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("none of the {} checkpoints in {} verifies; the oldest: {}", passed_over.size(),
                                       path, passed_over.back())};
  } catch (const Exception& error) {
    return error.error();
  }
}

Result<CheckpointReader> CheckpointReader::open(const std::string& path, VerifyLevel level) {
  return open(Group(), path, level);
}

const StoredTensor* CheckpointReader::find(const TensorKey& key) const {
  const auto found = manifest_.tensors.find(key);
  return found == manifest_.tensors.end() ? nullptr : &found->second;
}

Status CheckpointReader::expect(std::span<const ExpectedTensor> wanted) const {
  std::vector<std::string> missing, misshapen, extra;
  std::set<TensorKey> known;
  for (const ExpectedTensor& want : wanted) {
    known.insert(want.key);
    const StoredTensor* const tensor = find(want.key);
    if (!tensor) {
      missing.push_back(to_string(want.key));
    } else if (tensor->dtype != want.dtype || tensor->shape != want.shape) {
      misshapen.push_back(fmt::format("{} is {}{}, wanted {}{}", to_string(want.key), name(tensor->dtype),
                                      shape_text(tensor->shape), name(want.dtype), shape_text(want.shape)));
    }
  }
  for (const auto& [key, tensor] : manifest_.tensors)
    if (!known.contains(key)) extra.push_back(to_string(key));
  std::vector<std::string> troubles;
  if (!missing.empty()) troubles.push_back("it lacks " + named(missing));
  if (!misshapen.empty()) troubles.push_back(named(misshapen));
  if (!extra.empty()) troubles.push_back("it has more: " + named(extra));
  if (troubles.empty()) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another model: {}", folder_, join(troubles, "; ")),
               .hint = "start with the options of the run that saved it"};
}

// Reads parts of one tensor, by rising rows: what is held of a stored box after one part serves the next.
class CheckpointReader::BoxReader {
 public:
  static Result<BoxReader> create(const CheckpointReader& saved, const TensorKey& key, const TensorBox& box) {
    const StoredTensor* const tensor = saved.find(key);
    if (!tensor)
      return Error{.code = Code::kNotFound,
                   .detail = fmt::format("the checkpoint {} has no tensor {}", saved.folder_, to_string(key))};
    if (box.begin.size() != box.extent.size() || !box.inside(tensor->shape))
      return invalid_argument(
          fmt::format("the tensor {} of the checkpoint {} is {}; the box that is wanted is not inside", to_string(key),
                      saved.folder_, shape_text(tensor->shape)));
    BoxReader reader(*tensor);
    for (const StoredBox& stored : tensor->boxes)
      reader.bytes_.emplace_back(saved.files_[stored.file].get(),
                                 saved.folder_ + "/" + saved.manifest_.files[stored.file].name, stored,
                                 stored.box.elements() * reader.element(), saved.manifest_.chunk_bytes,
                                 to_string(key) + " " + box_text(stored.box));
    return reader;
  }
  std::uint64_t element() const { return size_of(tensor_.dtype); }

  Status read(const TensorBox& box, std::byte* out, std::size_t row_stride) {
    const std::uint64_t row_bytes = box.row_elements() * element();
    const bool packed = row_stride == 0 || row_stride == row_bytes;
    for (std::size_t b = 0; b < bytes_.size(); ++b) {
      const auto run = [&](std::uint64_t in_stored, std::uint64_t in_box, std::uint64_t count) {
        const std::uint64_t at = in_box * element();
        const std::uint64_t place = packed ? at : at / row_bytes * row_stride + at % row_bytes;
        return bytes_[b].read(in_stored * element(), {out + place, count * element()});
      };
      TUTTI_TRY(for_each_run(tensor_.boxes[b].box, box, packed, run));
    }
    return {};
  }

 private:
  explicit BoxReader(const StoredTensor& tensor) : tensor_(tensor) {}
  const StoredTensor& tensor_;
  std::vector<StoredBytes> bytes_;  // of its boxes
};

Status CheckpointReader::read(const TensorKey& key, const TensorBox& box, void* into, std::size_t row_stride) const {
  auto reader = TUTTI_TRY(BoxReader::create(*this, key, box));
  if (const std::uint64_t bytes = box.row_elements() * reader.element(); row_stride != 0 && row_stride < bytes)
    return invalid_argument(
        fmt::format("rows of {} have {} bytes; they do not fit a stride of {}", to_string(key), bytes, row_stride));
  return reader.read(box, static_cast<std::byte*>(into), row_stride);
}

Status CheckpointReader::read(const TensorKey& key, const TensorBox& box, const RowSink& sink) const {
  auto reader = TUTTI_TRY(BoxReader::create(*this, key, box));
  if (box.elements() == 0) return {};
  const std::uint64_t rows = box.row_count(), bytes = box.row_elements() * reader.element();
  const std::uint64_t at_once = std::min(rows, std::max<std::uint64_t>(1, kChunkBytes / bytes));
  std::vector<std::byte> buffer(at_once * bytes);
  for (std::uint64_t first = 0; first < rows; first += at_once) {
    TensorBox part = box;
    if (!box.extent.empty()) {
      part.begin[0] = box.begin[0] + first;
      part.extent[0] = std::min(at_once, rows - first);
    }
    TUTTI_TRY(reader.read(part, buffer.data(), 0));
    TUTTI_TRY(sink(first, part.row_count(), buffer.data()));
  }
  return {};
}

Status CheckpointReader::read(const TensorKey& key, std::span<std::byte> into) const {
  const StoredTensor* const tensor = find(key);
  const TensorBox all = tensor ? TensorBox::whole(tensor->shape) : TensorBox();
  if (tensor && into.size() != all.elements() * size_of(tensor->dtype))
    return invalid_argument(fmt::format("the tensor {} of the checkpoint {} has {} bytes; the buffer given has {}",
                                        to_string(key), folder_, all.elements() * size_of(tensor->dtype), into.size()));
  return read(key, all, into.data());
}

Status CheckpointReader::verify(std::uint64_t part, std::uint64_t parts) const {
  std::uint64_t number = 0;  // of the chunk, over all tensors
  for (const auto& [key, tensor] : manifest_.tensors) {
    for (const StoredBox& stored : tensor.boxes) {
      StoredBytes bytes(files_[stored.file].get(), folder_ + "/" + manifest_.files[stored.file].name, stored,
                        stored.box.elements() * size_of(tensor.dtype), manifest_.chunk_bytes,
                        to_string(key) + " " + box_text(stored.box));
      for (std::uint64_t chunk = 0; chunk < bytes.chunks(); ++chunk)
        if (number++ % parts == part) TUTTI_TRY(bytes.check_chunk(chunk));
    }
  }
  return {};
}

}  // namespace tutti
