// What is written goes on its way to the disk after some megabytes, so that the flush at the end is short.
#include "tutti/checkpoint/tools/copy_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

constexpr std::uint64_t kWriteBehind = std::uint64_t(16) << 20;

class CopyWriter {
 public:
  CopyWriter(int fd, const std::string& path, std::uint64_t at, SharedProgress& progress)
      : fd_(fd), path_(path), at_(at), flushed_(at), progress_(progress), piece_(kPieceBytes) {}

  Status write(const TensorSource& source, const CopiedBox& copied, StoredBox& stored) {
    if (copied.box.elements() == 0) return {};
    const std::uint64_t element = source.find(copied.key)->element_bytes;
    const auto stream = TUTTI_TRY(source.stream(copied.key));
    digests_ = &stored.crc32c;
    left_ = 0;
    return for_each_piece(copied.box, kPieceBytes / element, [&](const TensorBox& part) -> Status {
      const auto bytes = std::span(piece_).first(part.elements() * element);
      TUTTI_TRY(stream->read(part, bytes.data()));
      digest(bytes);
      TUTTI_TRY(write_all(fd_, bytes, path_));
      at_ += bytes.size();
      if (at_ - flushed_ >= kWriteBehind) {
        (void)::sync_file_range(fd_, off_t(flushed_), off_t(at_ - flushed_), SYNC_FILE_RANGE_WRITE);
        flushed_ = at_;
      }
      progress_.add(bytes.size());
      return {};
    });
  }

 private:
  void digest(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (left_ == 0) {
        digests_->push_back(0);
        left_ = kChunkBytes;
      }
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), left_));
      digests_->back() = crc32c(part, digests_->back());
      left_ -= part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  const int fd_;
  const std::string& path_;
  std::uint64_t at_, flushed_;
  SharedProgress& progress_;
  std::vector<std::byte> piece_;
  std::vector<std::uint32_t>* digests_ = nullptr;
  std::uint64_t left_ = 0;  // of the chunk
};

}  // namespace

std::string name_of_copy(const TensorKey& key, const TensorBox& box, const TensorShape& shape) {
  const std::string name = key.state.empty() ? key.name : key.name + "/" + key.state;
  return box == TensorBox::whole(shape) ? name : name + box_text(box);
}

Result<CopiedFile> copy_to_file(const TensorSource& source, std::span<const CopiedBox> boxes,
                                const SafetensorsMetadata& metadata, int fd, const std::string& path,
                                SharedProgress& progress) {
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto element = [&](std::size_t b) { return source.find(boxes[b].key)->element_bytes; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return element(a) > element(b); });
  std::vector<SafetensorsEntry> entries;
  std::uint64_t end = 0;
  for (const std::size_t b : order) {
    const SourceTensor& tensor = *source.find(boxes[b].key);
    if (safetensors_bits(tensor.dtype) == 0)
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("{} is {}, which safetensors files do not know", to_string(boxes[b].key),
                                         tensor.dtype)};
    const std::uint64_t begin = end;
    end += boxes[b].box.elements() * tensor.element_bytes;
    entries.push_back({.name = name_of_copy(boxes[b].key, boxes[b].box, tensor.shape),
                       .dtype = tensor.dtype,
                       .shape = boxes[b].box.extent,
                       .begin = begin,
                       .end = end});
  }
  const std::string header = TUTTI_TRY(compose_safetensors_header(entries, metadata));
  // Asks for all of the room, so that a full disk is known before anything is written.
  if (::fallocate(fd, 0, 0, off_t(header.size() + end)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return system_error(errno, fmt::format("cannot make room for {} bytes in {}", header.size() + end, path));
  TUTTI_TRY(write_all(fd, std::as_bytes(std::span(header)), path));
  CopiedFile copied{.file = {.name = {},
                             .bytes = header.size() + end,
                             .header_bytes = header.size(),
                             .header_crc32c = crc32c(std::as_bytes(std::span(header)))},
                    .boxes = std::vector<StoredBox>(boxes.size())};
  CopyWriter writer(fd, path, header.size(), progress);
  for (std::size_t i = 0; i < order.size(); ++i) {
    StoredBox& stored = copied.boxes[order[i]];
    stored.box = boxes[order[i]].box;
    stored.offset = header.size() + entries[i].begin;
    TUTTI_TRY(writer.write(source, boxes[order[i]], stored));
  }
  return copied;
}

}  // namespace tutti
