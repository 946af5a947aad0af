#pragma once
// A checkpoint whose files lie in several places, each of which only some of the ranks can read: the memory of a node,
// or a folder of its own.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/comm/group.h"

namespace tutti {

// Ranks by what they share.
struct RanksByPlace {
  std::vector<int> place_of;               // by rank; places are numbered by their lowest rank
  std::vector<std::vector<int>> ranks_of;  // by place, rising

  int place(int rank) const { return place_of[std::size_t(rank)]; }
  const std::vector<int>& mates(int rank) const { return ranks_of[std::size_t(place(rank))]; }
  int local_rank(int rank) const;                               // among those of its place
  bool leads(int rank) const { return local_rank(rank) == 0; }  // the lowest of its place
};
// Equal words, one place.
RanksByPlace ranks_by_place(const std::vector<std::string>& words);

// A file of the checkpoint, as this rank has it.
struct FileHere {
  Fd near;                 // of a file that can be read here; none: it is far
  std::uint64_t base = 0;  // where in it the file of the checkpoint begins
};

// Reads the near files where they are, and brings what is wanted of the far ones here, into memory of this process.
// `files` and `servers` are as in the manifest; servers[f]: a rank to which file f is near, the same on every rank.
// Collective; an error is the same on every rank.
Result<CheckpointReader> read_scattered(const Group& group, std::string name, Manifest manifest,
                                        std::vector<FileHere> files, const std::vector<int>& servers,
                                        std::span<const StateBox> wanted);

}  // namespace tutti
