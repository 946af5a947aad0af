#pragma once
// The manifest of a checkpoint: which tensors there are and where their bytes lie (docs/reference/formats.md).
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/error.h"
#include "tutti/checkpoint/format/box.h"

namespace tutti {

// A number, a word or a switch that is saved beside the tensors. What is larger (the state of a generator) is a tensor.
using CheckpointValue = std::variant<bool, std::int64_t, double, std::string>;
using CheckpointValues = std::map<std::string, CheckpointValue>;
// None: it is not there, or no whole number.
std::optional<std::int64_t> whole_number(const CheckpointValues& values, const std::string& name);
// A whole number counts as well: 2.0 may come back as one.
std::optional<double> real_number(const CheckpointValues& values, const std::string& name);

// What a checkpoint says besides its tensors. All of it is the caller's choice, but `step`.
struct CheckpointFacts {
  std::int64_t step = 0;      // names the folder; not negative
  CheckpointValues values;    // scalars of model, optimizer, schedule: "train_loss", "best_auc", "lr"
  CheckpointValues data;      // where the data goes on: "epoch", "batch", "seed"
  CheckpointValues layout;    // of the job that wrote it: "ranks", "placement"
  CheckpointValues versions;  // of programs; "tutti" is added
};

// A tensor of the model ("fc.weight", ""), or something that the optimizer keeps for it ("fc.weight", "momentum").
struct TensorKey {
  std::string name, state;
  auto operator<=>(const TensorKey&) const = default;
};
// "fc.weight", or "momentum of fc.weight"
std::string to_string(const TensorKey& key);

// Digests are CRC-32Cs of runs of this many bytes, so that a part can be checked without reading the whole.
inline constexpr std::uint64_t kChunkBytes = std::uint64_t(1) << 20;

struct StoredBox {
  TensorBox box;
  std::uint32_t file = 0;             // in Manifest::files
  std::uint64_t offset = 0;           // of its first byte in the file
  std::vector<std::uint32_t> crc32c;  // of each chunk, the last of which may be shorter
};

struct StoredTensor {
  DType dtype = DType::kF32;
  TensorShape shape;
  std::vector<StoredBox> boxes;  // each element is in one
};

struct StoredFile {
  std::string name;  // a plain name, in the folder of the manifest
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;   // from the beginning to the first tensor
  std::uint32_t header_crc32c = 0;  // of those
};

struct Manifest {
  CheckpointFacts facts;
  std::uint64_t chunk_bytes = kChunkBytes;
  std::vector<StoredFile> files;
  std::map<TensorKey, StoredTensor> tensors;
};

inline constexpr const char* kManifestName = "manifest.json";

// JSON, with a digest of itself at the end.
Result<std::string> compose_manifest(const Manifest& manifest);
// kCorrupt says which rule is broken and where, kUnsupported that the file is of a version that is not known. What is
// taken is consistent: boxes are inside their tensors, cover them once, lie in their files and nowhere twice. Takes
// memory in proportion to the text.
Result<Manifest> parse_manifest(std::string_view text);

// What one rank has written of a checkpoint: as parse_manifest(), but its tensors need not be whole.
Result<Manifest> parse_manifest_part(std::string_view text);
// Adds the files and boxes of a part.
void merge(Manifest& into, Manifest part);

namespace detail {
// For compose_manifest(), tests and fuzzing: the text with the digest that it should have.
std::string with_manifest_digest(std::string text);
}  // namespace detail

}  // namespace tutti
