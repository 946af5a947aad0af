// gzread() passes plain files through, so one path reads both. Everything is checked where it lies: each error names
// the offset in the uncompressed stream, what the format wants there, and what stood there instead.
#include "tutti/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

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
  IdxReader(std::string path, gzFile file) : path_(std::move(path)), file_(file, gzclose) {}

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
      const std::size_t at = offset_;
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
    const int after = gzread(file_.get(), &extra, 1);
    if (after < 0) return damaged();
    if (after != 0)
      return corrupt(fmt::format("byte {}: expected the end of the file after {}, found more", offset_, what));
    return array;
  }

 private:
  // `wanted`: bytes still missing of `what`, for the error.
  Status fill(std::uint8_t* into, std::size_t size, const std::string& what, std::size_t wanted = 0) {
    const int got = gzread(file_.get(), into, unsigned(size));
    if (got < 0) return damaged();
    offset_ += std::size_t(got);
    if (std::size_t(got) == size) return {};
    int code = Z_OK;
    gzerror(file_.get(), &code);
    const char* how = code == Z_BUF_ERROR ? "the compressed data is cut off" : "the file ends";
    return corrupt(fmt::format("byte {}: expected {} more bytes of {}, but {}", offset_,
                               std::max(wanted, size) - std::size_t(got), what, how));
  }

  Error damaged() {
    int code = Z_OK;
    const std::string text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO)
      return Error{.code = Code::kSystem, .detail = fmt::format("cannot read {}", path_), .errno_value = errno};
    return corrupt(fmt::format("after byte {}: the compressed data is damaged ({})", offset_, text));
  }

  Error corrupt(std::string detail) const {
    return Error{
        .code = Code::kCorrupt, .detail = fmt::format("{}: {}", path_, detail), .hint = "fetch the file again"};
  }

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::size_t offset_ = 0;
};

}  // namespace

Result<IdxArray> read_idx(const std::string& path) {
  errno = 0;
  const gzFile file = gzopen(path.c_str(), "rb");
  if (!file) {
    const int error = errno;
    return Error{.code = error == ENOENT ? Code::kNotFound : Code::kSystem,
                 .detail = fmt::format("cannot open {}", path),
                 .errno_value = error};
  }
  gzbuffer(file, 1 << 17);
  return IdxReader(path, file).read();
}

}  // namespace tutti
