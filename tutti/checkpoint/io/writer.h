#pragma once
// Saving: each rank writes what it has, rank 0 makes it a checkpoint by one rename. Until then nothing has changed, and
// whatever goes wrong on any rank (a full disk, an error of a source, a rank that dies) leaves the older checkpoints as
// they were.
//
//   std::vector<StateBox> boxes;   // of this rank
//   boxes.push_back({.key = {"fc.weight"}, .dtype = DType::kF32, .shape = {10, 64}, .data = weights});
//   boxes.push_back({.key = {"emb.0"}, .dtype = DType::kF32, .shape = {rows, 64},
//                    .box = TensorBox::rows({rows, 64}, first, count), .data = mine});
//   Status saved = save_checkpoint(group, folder, boxes, {.step = 100}, {.keep = 3});
//
// Contiguous boxes are written in place, others through a buffer of 1 MiB. Tensors of the model go to
// model-*.safetensors and the optimizer state to optimizer-*.safetensors, so any reader of that format can load the
// weights.
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/state.h"
#include "tutti/comm/group.h"

namespace tutti {

struct SaveOptions {
  int keep = 0;                 // older checkpoints are removed, so that this many are there; 0: none is
  std::int64_t keep_every = 0;  // but for those whose step is a multiple of this; 0: for none
  // After this many bytes each rank waits until the other ranks have written as many, or all they have. So a
  // collective's deadline must leave time for this many bytes, however large the tables are.
  std::uint64_t meet_every = std::uint64_t(1) << 30;
  // Called with the path of each checkpoint that is complete, by the rank that renamed it (rank 0; with a folder for
  // each node, the first rank of each node), on the thread that saves. While it runs, no checkpoint is deleted, and the
  // next save waits. Its error, or its exception, is logged as a warning.
  std::function<Status(const std::string& path)> on_saved = {};
};

// Writes FOLDER/step-0000100 and FOLDER/latest. Collective; every rank gives the same folder, which all of them see,
// and rank 0's facts and options count. Equal on all ranks: ok, or the error of the first rank that had one. A
// checkpoint of the same step is replaced. What cannot be removed is a warning.
Status save_checkpoint(const Group& group, const std::string& folder, std::span<const StateBox> boxes,
                       const CheckpointFacts& facts, const SaveOptions& options = {});
// Its boxes and facts.
Status save_checkpoint(const Group& group, const std::string& folder, const StateDict& state,
                       const SaveOptions& options = {});
// From one process without a group.
Status save_checkpoint(const std::string& folder, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                       const SaveOptions& options = {});

}  // namespace tutti
