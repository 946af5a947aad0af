#pragma once
// For the reader: where the elements of one box lie in the bytes of another, and checked reading of those.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

// The elements that `box` and `stored` have in common, as runs that are contiguous in both: run(place in stored, place
// in box, how many), in elements, by rising place in stored. Rows of `box` may lie apart: no run spans two of them,
// unless `packed`. Stops at the first error.
Status for_each_run(const TensorBox& stored, const TensorBox& box, bool packed,
                    const std::function<Status(std::uint64_t, std::uint64_t, std::uint64_t)>& run);

// A stored box of a checkpoint, and its chunks [begin, end).
struct ChunkRun {
  const TensorKey& key;
  const StoredTensor& tensor;
  const StoredBox& box;
  std::uint64_t begin, end;
};
// The part-th of `parts` parts of all chunks in the files that `counts` says to count, by file and place: so what a
// part has lies one behind another, and a disk reads it ahead. Stops at the first error.
Status for_each_chunk_run(const Manifest& manifest, std::uint64_t part, std::uint64_t parts,
                          const std::function<bool(std::size_t)>& counts,
                          const std::function<Status(const ChunkRun&)>& run);

// Chunks of which a part is still wanted, over all boxes of one tensor: at most so many are kept.
struct HeldChunks {
  std::size_t most = 64, held = 0;
  std::vector<std::byte> passing;  // one that is not kept
};

// Reads runs of the bytes of a stored box, and checks the digest of every chunk when it first touches it. By rising
// place each chunk is read once; where more than `most` of them would have to be kept, the parts of a chunk that is
// known to be good are read one by one.
class StoredBytes {
 public:
  // `bytes`: of the box; `what`: for errors, "emb.0 [0:10, 0:4]". `chunks` outlives this.
  StoredBytes(int fd, std::string path, const StoredBox& box, std::uint64_t bytes, std::uint64_t chunk_bytes,
              std::string what, HeldChunks& chunks);
  Status read(std::uint64_t begin, std::span<std::byte> into);
  // Without keeping anything.
  Status check_chunk(std::uint64_t chunk);
  std::uint64_t chunks() const { return box_.crc32c.size(); }

 private:
  std::uint64_t size_of_chunk(std::uint64_t chunk) const;
  Status read_chunk(std::uint64_t chunk, std::span<std::byte> into);
  Status read_part(std::uint64_t chunk, std::uint64_t offset, std::span<std::byte> into);
  void let_go();

  const int fd_;
  const std::string path_;
  const StoredBox& box_;
  const std::uint64_t bytes_, chunk_bytes_;
  const std::string what_;
  HeldChunks& all_;
  std::vector<bool> good_;  // chunks whose digest was right
  std::vector<std::byte> held_;
  std::uint64_t held_chunk_ = kNone;
  static constexpr std::uint64_t kNone = ~std::uint64_t(0);
};

}  // namespace tutti
