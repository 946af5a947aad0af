// The header comes first and needs no look at the data: sizes are known, and digests stand in the manifest. Then each
// box is a stream of bytes, digested in chunks and written as it passes: from the caller's memory where rows lie
// packed, else through a buffer of 1 MiB (or of a row, where that is larger).
#include "tutti/checkpoint/io/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/crc32c.h"
#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {
namespace {

// Pieces end where the file has a multiple of this, so that the kernel can keep them in large pages: a write that
// begins in the middle of a page makes it take small ones, which costs several times the copy.
constexpr std::uint64_t kWrittenAtOnce = std::uint64_t(8) << 20;

class DigestedFile {
 public:
  // `at`: how many bytes have been written.
  DigestedFile(int fd, std::uint64_t at, const std::string& path, const ShardWritten& written)
      : fd_(fd), at_(at), path_(path), written_(written) {}

  void begin_box(StoredBox& box) {
    box_ = &box;
    left_ = 0;
  }
  Status add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min<std::uint64_t>(bytes.size(), kWrittenAtOnce - at_ % kWrittenAtOnce));
      digest(piece);
      TUTTI_TRY(write_all(fd_, piece, path_));
      (void)::sync_file_range(fd_, off_t(at_), off_t(piece.size()), SYNC_FILE_RANGE_WRITE);  // the disk may begin
      at_ += piece.size();
      if (written_) TUTTI_TRY(written_(fd_, path_, piece.size()));
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }

 private:
  void digest(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (left_ == 0) {
        box_->crc32c.push_back(0);
        left_ = kChunkBytes;
      }
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), left_));
      box_->crc32c.back() = crc32c(part, box_->crc32c.back());
      left_ -= part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  const int fd_;
  std::uint64_t at_;
  const std::string& path_;
  const ShardWritten& written_;
  StoredBox* box_ = nullptr;
  std::uint64_t left_ = 0;  // of the chunk
};

std::uint64_t row_bytes(const StateBox& saved) { return box_of(saved).row_elements() * size_of(saved.dtype); }

// Packs rows [first, first + count) of strided memory.
void pack(const StateBox& saved, std::uint64_t first, std::uint64_t count, std::byte* into) {
  const std::size_t bytes = row_bytes(saved);
  const auto* from = static_cast<const std::byte*>(saved.data) + first * saved.row_stride;
  for (std::uint64_t row = 0; row < count; ++row, from += saved.row_stride, into += bytes)
    std::memcpy(into, from, bytes);
}

Status write_box(const StateBox& saved, DigestedFile& file) {
  const TensorBox box = box_of(saved);
  const std::uint64_t rows = box.row_count(), bytes = row_bytes(saved);
  if (rows * bytes == 0) return {};
  const bool packed = !saved.source && (saved.row_stride == 0 || saved.row_stride == bytes || rows == 1);
  if (packed) return file.add({static_cast<const std::byte*>(saved.data), rows * bytes});
  const std::uint64_t at_once = std::min(rows, std::max<std::uint64_t>(1, kChunkBytes / bytes));
  std::vector<std::byte> buffer(at_once * bytes);
  for (std::uint64_t first = 0; first < rows; first += at_once) {
    const std::uint64_t count = std::min(at_once, rows - first);
    if (saved.source) {
      TUTTI_TRY(saved.source(first, count, buffer.data()));
    } else {
      pack(saved, first, count, buffer.data());
    }
    TUTTI_TRY(file.add(std::span(buffer).first(count * bytes)));
  }
  return {};
}

// "fc.weight", "fc.weight/momentum", "emb.0[0:1000, 0:64]"
std::string name_in_file(const StateBox& saved) {
  std::string name = saved.key.state.empty() ? saved.key.name : saved.key.name + "/" + saved.key.state;
  const TensorBox box = box_of(saved);
  return box == TensorBox::whole(saved.shape) ? name : name + box_text(box);
}

}  // namespace

Status write_shard(const std::string& folder, const std::string& name, std::span<const StateBox* const> boxes,
                   const std::string& mark, Manifest& manifest, const ShardWritten& written) {
  std::vector<const StateBox*> order(boxes.begin(), boxes.end());
  // Large elements first, so that each tensor is aligned.
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->dtype) > size_of(b->dtype); });
  std::vector<SafetensorsEntry> entries;
  std::uint64_t at = 0;
  for (const StateBox* saved : order) {
    const TensorBox box = box_of(*saved);
    const std::uint64_t bytes = box.elements() * size_of(saved->dtype);
    entries.push_back({.name = name_in_file(*saved),
                       .dtype = safetensors_name(saved->dtype),
                       .shape = box.extent,
                       .begin = at,
                       .end = at + bytes});
    at += bytes;
  }
  const std::string header = TUTTI_TRY(compose_safetensors_header(entries, {{"tutti.checkpoint", mark}}));

  const std::string path = folder + "/" + name;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd)
    return system_error(errno, fmt::format("cannot create {}", path),
                        errno == ENOENT ? "rank 0 made the folder; all ranks have to see the same one" : "");
  // Asks for all of the room, so that a full disk is known before anything is written.
  if (::fallocate(fd.get(), 0, 0, off_t(header.size() + at)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return system_error(errno, fmt::format("cannot make room for {} bytes in {}", header.size() + at, path));
  TUTTI_TRY(write_all(fd.get(), std::as_bytes(std::span(header)), path));
  const auto number = std::uint32_t(manifest.files.size());
  manifest.files.push_back({.name = name,
                            .bytes = header.size() + at,
                            .header_bytes = header.size(),
                            .header_crc32c = crc32c(std::as_bytes(std::span(header)))});
  DigestedFile file(fd.get(), header.size(), path, written);
  for (std::size_t i = 0; i < order.size(); ++i) {
    StoredTensor& tensor = manifest.tensors[order[i]->key];
    tensor.dtype = order[i]->dtype;
    tensor.shape = order[i]->shape;
    tensor.boxes.push_back({.box = box_of(*order[i]), .file = number, .offset = header.size() + entries[i].begin});
    file.begin_box(tensor.boxes.back());
    TUTTI_TRY(write_box(*order[i], file));
  }
  if (::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush {}", path));
  return {};
}

}  // namespace tutti
