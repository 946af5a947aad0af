#pragma once
// The newest copy in memory that all ranks together still have, as a checkpoint that can be read like any other.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/checkpoint/memory/neighbours.h"
#include "tutti/checkpoint/memory/shelves.h"
#include "tutti/comm/group.h"

namespace tutti {

struct RestoredCopy {
  CheckpointReader reader;
  std::int64_t step = 0;
  std::uint64_t history = 0;
};

// The newest step of which every part is whole, and as it was written, on one of the nodes; none: there is no such
// step. What lies on other nodes of `wanted` is fetched, so the reader has that and what lies on this node, and the
// rest of it would be told as bytes that have changed. Collective; the same step on every rank. What had to be passed
// over, and why, is a warning of rank 0. Throws Exception where the group ends.
Result<std::optional<RestoredCopy>> newest_copy(const Group& group, const Shelves& shelves,
                                                const CopyNeighbours& neighbours, std::span<const StateBox> wanted);

}  // namespace tutti
