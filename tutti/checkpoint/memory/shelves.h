#pragma once
// Where the copies of a node's ranks lie in the memory that its agent keeps (base/memory.h): a row of shelves,
// each with room for what one rank writes of a checkpoint. What a shelf holds is like a file of a checkpoint: a page
// that labels it, the bytes of the tensors one after another, and the manifest that says which they are, with their
// digests.
//
// Each rank writes its own shelves: pairs of which one is being written while the other holds the copy before. The
// label comes last, so whoever dies in the middle leaves a shelf that counts for nothing.
//
// Threads: any; different shelves at the same time.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/base/memory.h"

namespace tutti {

// Whose copy it is, and of what.
struct ShelfLabel {
  std::int64_t step = 0;
  std::uint64_t history = 0;          // a random word of the ranks that wrote copies together
  std::uint32_t part = 0, parts = 0;  // the number of the rank among those
  std::uint64_t bytes = 0;            // of the tensors
  std::uint64_t manifest_bytes = 0;

  bool operator==(const ShelfLabel&) const = default;
};

struct LabelledShelf {
  int shelf = 0;
  ShelfLabel label;
};

class Shelves {
 public:
  static constexpr std::uint64_t kShelfBytes = std::uint64_t(1) << 40;
  static constexpr std::uint64_t kDataBegin = 4096;                        // of the tensors, in a shelf
  static constexpr std::uint64_t kMostBytes = kShelfBytes - (1ull << 32);  // of tensors: the manifest has room
  // Of a rank: for itself, and for so many others.
  static constexpr int kGuests = 3, kPairs = 1 + kGuests, kOfRank = 2 * kPairs;
  static constexpr int kCount = int(KeptMemory::kBytes / kShelfBytes) - 1;
  static constexpr int kRanks = kCount / kOfRank;  // on one node at most

  explicit Shelves(KeptMemory memory) : memory_(std::move(memory)) {}

  // The shelf of a rank of the node; pair 0 is for itself.
  static int number(int local_rank, int pair, int which) { return local_rank * kOfRank + 2 * pair + which; }
  static std::uint64_t begin_of(int shelf) { return KeptMemory::kBegin + std::uint64_t(shelf) * kShelfBytes; }

  const KeptMemory& memory() const { return memory_; }
  // That are whole, of all ranks of the node, by number. Of what lies on them nothing is looked at.
  std::vector<LabelledShelf> whole() const;

  // Room for tensors, with its pages in place. kLimit: there is no memory.
  Result<Mapping> map(int shelf, std::uint64_t bytes) const;
  // From now on what is on it counts no more.
  Status begin(int shelf) const;
  Status write_manifest(int shelf, std::uint64_t bytes, const std::string& manifest) const;
  // Now it counts. All else has to be there.
  Status finish(int shelf, const ShelfLabel& label) const;
  Result<std::string> read_manifest(const LabelledShelf& labelled) const;
  // Gives the memory of a shelf back.
  Status clear(int shelf) const;
  // Of every one that holds anything, but for those given, which are rising.
  Status clear_all_but(const std::vector<int>& kept) const;

 private:
  std::vector<int> used() const;

  KeptMemory memory_;
};

}  // namespace tutti
