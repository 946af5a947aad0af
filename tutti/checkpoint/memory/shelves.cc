// Memory has no rename, so the label of a shelf is what a rename is to a folder: taken off before the first byte
// changes, put on when bytes and manifest are there. Each of the three is checked by its own digest: that of the label
// is in it, that of the manifest at the manifest's end, and the manifest has those of the bytes. Whoever is killed in
// the middle leaves a shelf without a label, and the other shelf of the pair with the copy before.
//
// The memory is sparse: a shelf that nobody has written takes none, and which are in use is asked of the kernel
// (SEEK_DATA), not of a table that a worker could leave half written.
#include "tutti/checkpoint/memory/shelves.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/snapshot.h"

namespace tutti {
namespace {

constexpr const char* kName = "the copies in memory";
constexpr std::uint64_t kPage = 4096;
static_assert(Shelves::kDataBegin == kPage);

// As it lies in a shelf. The digest is of what stands before it; a page of zeros has none that fits.
struct Stored {
  std::uint64_t magic = 0x31666c6873747475;
  ShelfLabel label;
  std::uint32_t digest = 0;

  std::uint32_t right_digest() const {
    return crc32c(std::as_bytes(std::span(&magic, 1)), crc32c(std::as_bytes(std::span(&label, 1))));
  }
};
static_assert(sizeof(ShelfLabel) == 5 * 8, "no byte of it is left open");

std::uint64_t round_up(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::uint64_t manifest_begin(int shelf, std::uint64_t bytes) {
  return Shelves::begin_of(shelf) + Shelves::kDataBegin + round_up(bytes);
}

Status write_at(int fd, std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), off_t(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error(errno, fmt::format("cannot write to {}", kName));
    at += std::uint64_t(written);
    bytes = bytes.subspan(std::size_t(written));
  }
  return {};
}

}  // namespace

std::vector<int> Shelves::used() const {
  std::vector<int> numbers;
  const auto end = begin_of(kCount);
  for (std::uint64_t at = KeptMemory::kBegin; at < end;) {
    const off_t data = ::lseek(memory_.fd(), off_t(at), SEEK_DATA);
    if (data < 0 || std::uint64_t(data) >= end) break;
    numbers.push_back(int((std::uint64_t(data) - KeptMemory::kBegin) / kShelfBytes));
    at = begin_of(numbers.back() + 1);
  }
  return numbers;
}

std::vector<LabelledShelf> Shelves::whole() const {
  std::vector<LabelledShelf> found;
  for (const int shelf : used()) {
    Stored stored;
    const auto bytes = std::as_writable_bytes(std::span(&stored, 1));
    if (!read_all(memory_.fd(), begin_of(shelf), bytes, kName).ok()) continue;
    const ShelfLabel& label = stored.label;
    const bool fits = label.bytes <= kMostBytes && label.manifest_bytes < kShelfBytes - kMostBytes - 2 * kPage;
    if (stored.magic != Stored().magic || stored.digest != stored.right_digest() || !fits) continue;
    if (label.step >= 0 && label.part < label.parts) found.push_back({shelf, label});
  }
  return found;
}

Result<Mapping> Shelves::map(int shelf, std::uint64_t bytes) const {
  if (bytes > kMostBytes)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("a copy of {} of a rank's state: at most {} are kept in memory",
                                       bytes_text(bytes), bytes_text(kMostBytes))};
  const std::size_t size = round_up(std::max<std::uint64_t>(bytes, 1));
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.fd(), off_t(begin_of(shelf) + kDataBegin));
  if (memory == MAP_FAILED) return system_error(errno, fmt::format("cannot map {} of {}", bytes_text(size), kName));
  Mapping mapping(memory, size);
  TUTTI_TRY(populate(mapping.data(), mapping.size()));
  return mapping;
}

Status Shelves::begin(int shelf) const {
  return write_at(memory_.fd(), begin_of(shelf), std::vector<std::byte>(sizeof(Stored)));
}

Status Shelves::write_manifest(int shelf, std::uint64_t bytes, const std::string& manifest) const {
  if (manifest.size() >= kShelfBytes - kMostBytes - 2 * kPage)
    return Error{.code = Code::kLimit, .detail = "the list of tensors is too long for a copy in memory"};
  return write_at(memory_.fd(), manifest_begin(shelf, bytes), std::as_bytes(std::span(manifest)));
}

Status Shelves::finish(int shelf, const ShelfLabel& label) const {
  Stored stored{.label = label};
  stored.digest = stored.right_digest();
  return write_at(memory_.fd(), begin_of(shelf), std::as_bytes(std::span(&stored, 1)));
}

Result<std::string> Shelves::read_manifest(const LabelledShelf& labelled) const {
  std::string text(labelled.label.manifest_bytes, '\0');
  TUTTI_TRY(read_all(memory_.fd(), manifest_begin(labelled.shelf, labelled.label.bytes),
                     std::as_writable_bytes(std::span(text)), kName));
  return text;
}

Status Shelves::clear(int shelf) const {
  if (::fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(begin_of(shelf)),
                  off_t(kShelfBytes)) != 0)
    return system_error(errno, fmt::format("cannot give memory of {} back", kName));
  return {};
}

Status Shelves::clear_all_but(const std::vector<int>& kept) const {
  for (const int shelf : used())
    if (!std::binary_search(kept.begin(), kept.end(), shelf)) TUTTI_TRY(clear(shelf));
  return {};
}

}  // namespace tutti
