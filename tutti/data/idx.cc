// Everything is checked where it lies: each error names the offset in the uncompressed stream, what the format wants
// there, and what stood there instead.
#include "tutti/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/base/gzip.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr int kMaxDimensions = 8;
constexpr std::size_t kMaxBytes = std::size_t(16) << 30;
constexpr std::size_t kChunk = std::size_t(4) << 20;

const char* element_type_name(std::uint8_t type) {
  switch (type) {
    case 0x08:
      return "unsigned bytes";
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "16-bit integers";
    case 0x0C:
      return "32-bit integers";
    case 0x0D:
      return "32-bit floats";
    case 0x0E:
      return "64-bit floats";
  }
  return "no known type";
}

class IdxReader {
 public:
  IdxReader(std::string path, MaybeGzipFile file) : path_(std::move(path)), file_(std::move(file)) {}

  Result<IdxArray> read() {
    std::uint8_t magic[4];
    TUTTI_TRY(fill(magic, 4, "the IDX header"));
    if (magic[0] != 0 || magic[1] != 0) {
      return corrupt(fmt::format("byte 0: expected the IDX magic 00 00, found {:02x} {:02x}", magic[0], magic[1]));
    }
    if (magic[2] != kUnsignedByte) {
      return corrupt(fmt::format("byte 2: expected element type 08 (unsigned bytes), found {:02x} ({})", magic[2],
                                 element_type_name(magic[2])));
    }
    const int dimensions = magic[3];
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      return corrupt(fmt::format("byte 3: expected 1 to {} dimensions, found {}", kMaxDimensions, dimensions));
    }
    IdxArray array;
    std::size_t bytes = 1;
    for (int i = 0; i < dimensions; ++i) {
      const std::size_t at = file_.position();
      std::uint8_t big_endian[4];
      TUTTI_TRY(fill(big_endian, 4, fmt::format("dimension {}", i)));
      const std::size_t extent = std::size_t(big_endian[0]) << 24 | std::size_t(big_endian[1]) << 16 |
                                 std::size_t(big_endian[2]) << 8 | big_endian[3];
      if (extent != 0 && bytes > kMaxBytes / extent) {
        return corrupt(fmt::format("byte {}: dimension {} of {} makes the array larger than {}", at, i, extent,
                                   bytes_text(kMaxBytes)));
      }
      bytes *= extent;
      array.shape.push_back(extent);
    }
    const std::string what = fmt::format("the elements of an array of shape [{}]", fmt::join(array.shape, ", "));
    while (array.values.size() < bytes) {
      const std::size_t have = array.values.size(), more = std::min(kChunk, bytes - have);
      array.values.resize(have + more);
      TUTTI_TRY(fill(array.values.data() + have, more, what, bytes - have));
    }
    std::uint8_t extra;
    const std::size_t end = file_.position();
    if (TUTTI_TRY(named(file_.read({&extra, 1}))) != 0)
      return corrupt(fmt::format("byte {}: expected the end of the file after {}, found more", end, what));
    if (file_.cut_off())
      return corrupt(fmt::format("byte {}: the compressed data is cut off before its checksum", end));
    return array;
  }

 private:
  // `wanted`: bytes still missing of `what`, for the error.
  Status fill(std::uint8_t* into, std::size_t size, const std::string& what, std::size_t wanted = 0) {
    const std::size_t got = TUTTI_TRY(named(file_.read({into, size})));
    if (got == size) return {};
    const char* how = file_.cut_off() ? "the compressed data is cut off" : "the file ends";
    return corrupt(fmt::format("byte {}: expected {} more bytes of {}, but {}", file_.position(),
                               std::max(wanted, size) - got, what, how));
  }

  // What is wrong with the bytes of the file, with its name.
  Result<std::size_t> named(Result<std::size_t> result) const {
    if (result.ok() || result.error().code != Code::kCorrupt) return result;
    return corrupt(result.error().detail);
  }

  Error corrupt(std::string detail) const {
    return Error{
        .code = Code::kCorrupt, .detail = fmt::format("{}: {}", path_, detail), .hint = "fetch the file again"};
  }

  std::string path_;
  MaybeGzipFile file_;
};

}  // namespace

Result<IdxArray> read_idx(const std::string& path) {
  return IdxReader(path, TUTTI_TRY(MaybeGzipFile::open(path))).read();
}

}  // namespace tutti
