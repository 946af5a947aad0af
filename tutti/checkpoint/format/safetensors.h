#pragma once
// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes little-endian N, N bytes of JSON that begin
// with '{' and may end with spaces, then the tensors' bytes, row-major and little-endian, without a gap. This reader is
// strict: a file that it takes means one thing only. Checksums (CRC-32C, one a tensor) stand in __metadata__ as
// "crc32c.NAME"; files of others have none.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header

  std::uint64_t bytes() const { return end - begin; }
  std::optional<DType> known_dtype() const;  // none: a type that tutti does not compute with
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  SafetensorsMetadata metadata;
};

// The JSON part of a file whose tensors take `data_bytes`. kCorrupt says which entry breaks which rule. Never allocates
// more than a small multiple of the text.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// "F32", "BF16", ...; empty: the format has no name for it (kC128).
const char* safetensors_name(DType dtype);
std::optional<DType> safetensors_dtype(std::string_view name);  // none: tutti does not compute with it
unsigned safetensors_bits(std::string_view name);               // of an element; 0: the format has no such type

// What a file begins with: length and JSON, padded with spaces so that the tensors begin at a multiple of 64 bytes.
// `entries` in the order of their bytes, without gaps. Errors: as write_safetensors().
Result<std::string> compose_safetensors_header(std::span<const SafetensorsEntry> entries,
                                               const SafetensorsMetadata& metadata);

class SafetensorsFile {
 public:
  // Reads and checks the header. Errors name the file.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr: there is none
  // `into` must have entry.bytes() bytes. Compares the checksum where the file carries one. Any thread.
  Status read(const SafetensorsEntry& entry, std::span<std::byte> into) const;
  // Bytes from `begin` on, unchecked.
  Status read(const SafetensorsEntry& entry, std::uint64_t begin, std::span<std::byte> into) const;
  bool has_checksum(const SafetensorsEntry& entry) const;
  // Compares the checksum where the file carries one, in little memory.
  Status check(const SafetensorsEntry& entry) const;

 private:
  Status compare_checksum(const SafetensorsEntry& entry, std::uint32_t found) const;

  std::string path_;
  Fd fd_;
  std::uint64_t data_offset_ = 0;
  SafetensorsHeader header_;
};

// A tensor to be written: contiguous, row-major, little-endian.
struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  const void* data = nullptr;
};

// Writes a file with checksums, through a temporary file beside it that takes its name when all is on disk: whoever
// looks sees the old file or the whole new one. Tensors are laid out by falling element size (so that each is aligned),
// then as given. A link is followed, an existing file keeps its mode. kInvalidArgument: `path` is there and no regular
// file (replaceable_file() tells beforehand); a name that occurs twice, is empty, "__metadata__", or holds control
// characters.
Status write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                         const SafetensorsMetadata& metadata = {});

}  // namespace tutti
