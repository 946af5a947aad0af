#pragma once
// Opens any file with tensors, in one process, without a group. It can be a checkpoint of Tutti (the newest of a
// folder, or a named one), a safetensors file, a folder of them with an index as Hugging Face writes it, or a PyTorch
// file. The job that wrote it need not be known.
//
//   const auto source = TUTTI_TRY(open_tensors("runs/a"));
//   TUTTI_TRY(source->read({"fc.weight"}, into));                                    // the whole
//   TUTTI_TRY(source->read({"emb.0"}, TensorBox::rows(shape, 3000, 1000), into));    // a box
//   for (const auto& [key, box] : boxes_of_rank(*source, 3)) ...                     // what rank 3 wrote
//
// Reads verify the digests that the file has: in a checkpoint of each chunk, in a PyTorch file of each record, in a
// safetensors file of Tutti of each tensor. Other safetensors files have none.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/format/value_tree.h"
#include "tutti/checkpoint/io/tensor_stream.h"

namespace tutti {

struct TensorPart {
  TensorBox box;
  std::string file;  // its name, for people
};

struct SourceTensor {
  std::string dtype;  // as safetensors names it; C128, which it does not know
  std::uint64_t element_bytes = 0;
  TensorShape shape;              // of the whole tensor
  std::vector<TensorPart> parts;  // what of it is here; boxes that do not overlap

  std::optional<DType> known_dtype() const;  // none: a type that tutti does not compute with
  std::uint64_t elements() const { return elements_of(shape).value_or(0); }
  std::uint64_t bytes_here() const;
  bool is_whole() const;
};

// The bytes of one part, packed row by row.
class PackedBytes {
 public:
  virtual ~PackedBytes() = default;
  virtual Status read(std::uint64_t begin, std::span<std::byte> into) = 0;
};

// Any thread may call it, also at the same time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const std::string& path() const { return path_; }      // of what was opened
  const std::string& format() const { return format_; }  // "Tutti checkpoint", "safetensors", "PyTorch file"
  const std::map<TensorKey, SourceTensor>& tensors() const { return tensors_; }
  const SourceTensor* find(const TensorKey& key) const;  // nullptr: there is none
  const ValueTree& about() const { return about_; }
  // Objects of a PyTorch file that are not read; their tensors are not among those above.
  const std::vector<SkippedObject>& skipped() const { return skipped_; }
  const std::optional<CheckpointFacts>& facts() const { return facts_; }  // of a checkpoint
  bool has_digests() const { return has_digests_; }                       // so that what is read is what was written

  // For many boxes of one tensor. The stream must not outlive this object.
  virtual Result<std::unique_ptr<TensorStream>> stream(const TensorKey& key) const;
  // `into`: packed, as many bytes as the box has.
  Status read(const TensorKey& key, const TensorBox& box, std::span<std::byte> into) const;
  Status read(const TensorKey& key, std::span<std::byte> into) const;

  // For sources that are made of others.
  virtual Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t part) const = 0;

 protected:
  Result<const SourceTensor*> look_up(const TensorKey& key) const;

  std::string path_, format_;
  std::map<TensorKey, SourceTensor> tensors_;
  ValueTree about_;
  std::vector<SkippedObject> skipped_;
  std::optional<CheckpointFacts> facts_;
  bool has_digests_ = true;
};

Result<std::unique_ptr<TensorSource>> open_tensors(const std::string& path);
// Several files as one: the parts that the ranks of a job wrote each for itself. A tensor, or a part, that is in more
// than one is taken from the first. kMismatch: a tensor has another type or shape in another file; kCorrupt: parts of a
// tensor overlap.
Result<std::unique_ptr<TensorSource>> open_tensors(std::span<const std::string> paths);

struct RankBox {
  TensorKey key;
  TensorBox box;
};
// What the file of a rank holds, where the names of files say so (...-00004-of-00008.safetensors is of rank 3).
std::vector<RankBox> boxes_of_rank(const TensorSource& source, int rank);

}  // namespace tutti
