// Two questions of geometry and one of trust. Which elements of a stored box belong to a wanted one: the boxes' common
// part, as runs that are contiguous in both. What of those bytes may be believed: a digest is of a chunk of 1 MiB, so a
// chunk is read as a whole and checked before any of it is handed out. And since a box by columns takes a little of
// every chunk, over and over, chunks of which a part is still wanted are held, up to a bound, and not read again.
#include "tutti/checkpoint/io/stored_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/format/digests.h"

namespace tutti {

// With the common part in hand, trailing dimensions that it has whole in both boxes belong to one run; the dimension
// before them is a run's length, and an index counts through those before that.
Status for_each_run(const TensorBox& stored, const TensorBox& box, bool packed,
                    const std::function<Status(std::uint64_t, std::uint64_t, std::uint64_t)>& run) {
  const auto common = stored.common(box);
  if (!common) return {};
  const std::size_t dimensions = common->begin.size();
  if (dimensions == 0) return run(0, 0, 1);
  std::size_t last = dimensions - 1;  // the dimension in which a run extends
  const std::size_t first = packed ? 0 : 1;
  while (last > first && common->extent[last] == stored.extent[last] && common->extent[last] == box.extent[last])
    --last;
  std::uint64_t within = 1;  // elements of the dimensions behind `last`
  for (std::size_t d = last + 1; d < dimensions; ++d) within *= common->extent[d];
  const bool one_by_one = last == 0 && !packed;  // a vector whose elements may lie apart
  const std::uint64_t length = one_by_one ? 1 : common->extent[last] * within;

  TensorShape index(dimensions, 0);  // in the common part; counts up to `last`, which moves only one_by_one
  const std::size_t moving = one_by_one ? 1 : last;
  while (true) {
    std::uint64_t in_stored = 0, in_box = 0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::uint64_t at = common->begin[d] + index[d];
      in_stored = in_stored * stored.extent[d] + (at - stored.begin[d]);
      in_box = in_box * box.extent[d] + (at - box.begin[d]);
    }
    TUTTI_TRY(run(in_stored, in_box, length));
    std::size_t d = moving;
    while (d > 0 && ++index[d - 1] == common->extent[d - 1]) index[--d] = 0;
    if (d == 0) return {};
  }
}

Status for_each_chunk_run(const Manifest& manifest, std::uint64_t part, std::uint64_t parts,
                          const std::function<bool(std::size_t)>& counts,
                          const std::function<Status(const ChunkRun&)>& run) {
  std::vector<ChunkRun> boxes;
  std::uint64_t chunks = 0;
  for (const auto& [key, tensor] : manifest.tensors)
    for (const StoredBox& box : tensor.boxes) {
      if (!counts(box.file)) continue;
      boxes.push_back({key, tensor, box, 0, box.crc32c.size()});
      chunks += box.crc32c.size();
    }
  std::vector<const ChunkRun*> by_place;
  for (const ChunkRun& one : boxes) by_place.push_back(&one);
  std::sort(by_place.begin(), by_place.end(), [](const ChunkRun* a, const ChunkRun* b) {
    return std::pair(a->box.file, a->box.offset) < std::pair(b->box.file, b->box.offset);
  });
  const std::uint64_t begin = chunks * part / parts, end = chunks * (part + 1) / parts;
  std::uint64_t first = 0;  // of the box, over all
  for (const ChunkRun* const one : by_place) {
    const std::uint64_t from = std::max(first, begin), to = std::min(first + one->end, end);
    if (from < to) TUTTI_TRY(run({one->key, one->tensor, one->box, from - first, to - first}));
    first += one->end;
  }
  return {};
}

namespace {

// The longest run of whole sectors that hold nothing but zeros, of bytes that begin at `at` in their file: where a hole
// was punched, or a file system lost a page. Empty: there is none.
std::string zeros_text(std::uint64_t at, std::span<const std::byte> bytes) {
  constexpr std::uint64_t kSector = 512;
  std::uint64_t longest = 0, where = 0, run = 0;
  for (std::uint64_t place = (kSector - at % kSector) % kSector; place + kSector <= bytes.size(); place += kSector) {
    const auto sector = bytes.subspan(place, kSector);
    const bool zero = std::all_of(sector.begin(), sector.end(), [](std::byte byte) { return byte == std::byte(0); });
    run = zero ? run + kSector : 0;
    if (run > longest) longest = run, where = at + place + kSector - run;
  }
  return longest == 0 ? "" : fmt::format("; bytes {} to {} are zeros: a hole?", where, where + longest);
}

}  // namespace

StoredBytes::StoredBytes(int fd, std::string path, const StoredBox& box, std::uint64_t bytes, std::uint64_t chunk_bytes,
                         std::string what, HeldChunks& chunks)
    : fd_(fd),
      path_(std::move(path)),
      box_(box),
      bytes_(bytes),
      chunk_bytes_(chunk_bytes),
      what_(std::move(what)),
      all_(chunks),
      good_(box.crc32c.size()) {}

std::uint64_t StoredBytes::size_of_chunk(std::uint64_t chunk) const {
  return std::min(chunk_bytes_, bytes_ - chunk * chunk_bytes_);
}

// In pieces: what was just read is still in the core's own cache when its digest is taken.
Status StoredBytes::read_chunk(std::uint64_t chunk, std::span<std::byte> into) {
  constexpr std::size_t kPiece = std::size_t(128) << 10;
  const std::uint64_t at = box_.offset + chunk * chunk_bytes_;
  std::uint32_t digest = 0;
  for (std::size_t begin = 0; begin < into.size(); begin += kPiece) {
    const auto piece = into.subspan(begin, std::min(kPiece, into.size() - begin));
    TUTTI_TRY(read_all(fd_, at + begin, piece, path_));
    digest = crc32c(piece, digest);
  }
  if (digest == box_.crc32c[chunk]) {
    good_[chunk] = true;
    return {};
  }
  std::string text = fmt::format("{}: bytes {} to {}, of {}, have changed: their digest is {:08x}, expected {:08x}",
                                 path_, at, at + into.size(), what_, digest, box_.crc32c[chunk]);
  if (const auto one = one_changed_byte(digest, box_.crc32c[chunk], into.size()))
    text += fmt::format("; byte {} alone would explain it, were it 0x{:02x} in place of 0x{:02x}", at + one->place,
                        unsigned(into[one->place]) ^ one->change, unsigned(into[one->place]));
  text += zeros_text(at, into);
  return Error{.code = Code::kCorrupt, .detail = std::move(text)};
}

void StoredBytes::let_go() {
  if (held_chunk_ == kNone) return;
  held_chunk_ = kNone;
  --all_.held;
  std::swap(held_, all_.passing);  // its memory serves the next one
  held_ = {};
}

Status StoredBytes::read_part(std::uint64_t chunk, std::uint64_t offset, std::span<std::byte> into) {
  const std::uint64_t size = size_of_chunk(chunk);
  if (chunk != held_chunk_ && good_[chunk])
    return read_all(fd_, box_.offset + chunk * chunk_bytes_ + offset, into, path_);
  if (chunk != held_chunk_) {
    let_go();
    all_.passing.resize(size);
    TUTTI_TRY(read_chunk(chunk, all_.passing));
    if (all_.held == all_.most || offset + into.size() == size) {
      std::memcpy(into.data(), all_.passing.data() + offset, into.size());
      return {};
    }
    std::swap(held_, all_.passing);
    held_chunk_ = chunk;
    ++all_.held;
  }
  std::memcpy(into.data(), held_.data() + offset, into.size());
  if (offset + into.size() == size) let_go();
  return {};
}

Status StoredBytes::read(std::uint64_t begin, std::span<std::byte> into) {
  while (!into.empty()) {
    const std::uint64_t chunk = begin / chunk_bytes_, offset = begin % chunk_bytes_, size = size_of_chunk(chunk);
    const auto part = into.first(std::min<std::uint64_t>(into.size(), size - offset));
    if (part.size() == size && chunk != held_chunk_) {  // a whole one goes straight to where it is wanted
      TUTTI_TRY(read_chunk(chunk, part));
    } else {
      TUTTI_TRY(read_part(chunk, offset, part));
    }
    begin += part.size();
    into = into.subspan(part.size());
  }
  return {};
}

Status StoredBytes::check_chunk(std::uint64_t chunk) {
  all_.passing.resize(size_of_chunk(chunk));
  return read_chunk(chunk, all_.passing);
}

}  // namespace tutti
