#pragma once
// Loading: any box of any tensor, whoever saved it in which boxes. No group is needed, and nothing of the job that
// wrote the checkpoint: one process may read one row of it.
//
//   auto saved = TUTTI_TRY(CheckpointReader::open("runs/a"));       // the newest that verifies
//   TUTTI_TRY(saved.expect(wanted));                                // names what is missing, too much or misshapen
//   TUTTI_TRY(saved.read({"fc.weight"}, into));
//   TUTTI_TRY(saved.read({"emb.0"}, TensorBox::rows(shape, first, count), mine));
//
// Reads check the digests of all chunks that they touch. Threads: read() and verify() may be called by any, also at the
// same time.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/tensor_stream.h"
#include "tutti/checkpoint/state.h"
#include "tutti/comm/group.h"

namespace tutti {

enum class VerifyLevel {
  kFiles,  // manifest, names, sizes and headers of the files; bytes are checked as they are read
  kAll,    // every byte, before open() returns
};

// What to do about tensors that are missing, too many, or of another type or shape.
enum class MatchMode {
  kStrict,  // an error that names them
  kReport,  // a warning that names them
  kIgnore,  // nothing
};

// What of a program's tensors a checkpoint has. Names as in errors: "momentum of fc.weight".
struct TensorMatch {
  std::vector<bool> fits;                              // for each that is wanted: it is there, in this type and shape
  std::vector<std::string> missing, misshapen, extra;  // misshapen: with both shapes

  bool whole() const { return missing.empty() && misshapen.empty() && extra.empty(); }
};
// All that differs (the first twenty of each kind); empty: nothing.
std::string to_string(const TensorMatch& match);

class CheckpointReader {
 public:
  // `path`: the folder of one checkpoint, or one that holds step-... folders: then the newest of them that verifies;
  // those passed over, and why, are in passed_over(). kNotFound: there is none at all; kCorrupt: none verifies.
  static Result<CheckpointReader> open(const std::string& path, VerifyLevel level = VerifyLevel::kAll);
  // The same one on every rank, each of which verifies its part. Collective.
  static Result<CheckpointReader> open(const Group& group, const std::string& path,
                                       VerifyLevel level = VerifyLevel::kAll);

  // For files of a checkpoint that are not in a folder: those of the manifest, in its order, with the boxes where the
  // manifest says. `name` is used in messages. Reads nothing.
  static CheckpointReader of_files(std::string name, Manifest manifest, std::vector<Fd> files);

  const std::string& folder() const { return folder_; }  // of this checkpoint
  const std::vector<std::string>& passed_over() const { return passed_over_; }
  const CheckpointFacts& facts() const { return manifest_.facts; }
  const Manifest& manifest() const { return manifest_; }
  // nullptr: there is none
  const StoredTensor* find(const TensorKey& key) const;

  // What of `wanted` may be read. kMismatch, in strict mode: it is not all of it, or not all there is. Load only what
  // fits: nothing is changed before that is known.
  Result<TensorMatch> match(std::span<const StateBox> wanted, MatchMode mode = MatchMode::kStrict) const;
  // As expect(), without an error or a log line: what matches and what does not.
  TensorMatch compare(std::span<const StateBox> wanted) const;
  // match() in strict mode.
  Status expect(std::span<const StateBox> wanted) const;

  // `into`: the box's first element; row_stride: bytes from row to row, 0: packed. On error `into` is undefined.
  Status read(const TensorKey& key, const TensorBox& box, void* into, std::size_t row_stride = 0) const;
  // For rows that do not lie in memory as they were saved: through a buffer of about 1 MiB.
  Status read(const TensorKey& key, const TensorBox& box, const RowSink& sink) const;
  // The whole tensor, which has this many bytes.
  Status read(const TensorKey& key, std::span<std::byte> into) const;
  // For many boxes of one tensor: a chunk that was read and checked for one box serves the next. Keeps at most 32 MiB,
  // or one chunk. The stream must not outlive this reader. Boxes are not checked: they must be inside the tensor.
  Result<std::unique_ptr<TensorStream>> stream(const TensorKey& key) const;
  // Every byte of the files, or the part-th of `parts` parts of them.
  Status verify(std::uint64_t part = 0, std::uint64_t parts = 1) const;

 private:
  Result<const StoredTensor*> look_up(const TensorKey& key) const;
  Result<const StoredTensor*> check_box(const TensorKey& key, const TensorBox& box) const;
  static Result<CheckpointReader> open_one(const std::string& folder);
  static Result<CheckpointReader> open_whole(const Group& group, const std::string& folder, VerifyLevel level);

  std::string folder_;
  Manifest manifest_;
  std::vector<Fd> files_;  // as in the manifest
  std::vector<std::string> passed_over_;
};

// kMismatch, with all that differs.
Error of_another_model(const CheckpointReader& saved, const TensorMatch& match);

}  // namespace tutti
