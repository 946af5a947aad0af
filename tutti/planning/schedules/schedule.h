#pragma once
// The actions of each rank of a pipeline, in order. A schedule is data: a list of actions per rank. One interpreter
// runs it, one simulator times it, and one drawing shows it. Sender and receiver follow from the placement of the
// stages. Messages are matched by (microbatch, stage), so any number of microbatches works.
//
// A pipeline of `ranks` ranks has ranks * chunks stages, each a range of consecutive layers ("virtual stages" if a rank
// has several chunks). Pure arithmetic; mistakes throw Exception.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class ScheduleKind {
  kFillDrain,              // GPipe (Huang et al. 2018, arXiv:1811.06965): all forwards, then all backwards
  kOneForwardOneBackward,  // PipeDream-Flush (Narayanan et al. 2020, arXiv:2006.09503), Megatron-LM without chunks
  kInterleaved,   // 1F1B over chunks (Narayanan et al. 2021, arXiv:2104.04473), Megatron-LM with chunks
  kZeroBubbleH1,  // backward in two halves, memory of 1F1B (Qi et al. 2023, arXiv:2401.10241)
  kZeroBubbleV,   // two chunks per rank in a V (Qi et al. 2024, arXiv:2405.15362, "V-ZB")
};
inline constexpr ScheduleKind kScheduleKinds[] = {ScheduleKind::kFillDrain, ScheduleKind::kOneForwardOneBackward,
                                                  ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1,
                                                  ScheduleKind::kZeroBubbleV};
// The spelling in options: "fill-drain", "1f1b", "interleaved", "zb-h1", "zb-v".
std::string_view name(ScheduleKind kind);
std::optional<ScheduleKind> schedule_kind(std::string_view name);

enum class ActionKind {
  kForward,
  kBackward,        // gradients of the input and of the weights
  kBackwardInput,   // of the input only, which the stage before waits for
  kBackwardWeight,  // of the weights, any time after kBackwardInput
};

struct Action {
  ActionKind kind;
  int microbatch;
  int chunk;  // of the rank, 0 to chunks - 1
  bool operator==(const Action&) const = default;
};
// "F0a", "B3b", "I2a", "W2a". With a single chunk the letter of the chunk is omitted.
std::string to_string(const Action& action, int chunks);
std::string to_string(std::span<const Action> actions, int chunks);  // separated by spaces

struct PipelineShape {
  int ranks = 1;         // Megatron's pipeline-model-parallel size
  int microbatches = 1;  // per step
  int chunks = 1;        // per rank: kInterleaved 2 or more, kZeroBubbleV 2, all others 1
  // kInterleaved: the number of microbatches that pass through a chunk before the next chunk runs, at least `ranks`
  // (--microbatch-group-size-per-virtual-pipeline-stage). 0: `ranks`.
  int microbatch_group = 0;
  bool forward_only = false;  // evaluation: no backward, no activations are kept

  int stages() const { return ranks * chunks; }
};

struct Schedule {
  ScheduleKind kind;
  PipelineShape shape;
  std::vector<std::vector<Action>> actions;  // by rank

  // The stage of a rank's chunk. Stage s is on rank s % ranks; in a V the stages are on ranks 0, 1, ... p-1, p-1, ...
  // 0.
  int stage_of(int rank, int chunk) const;
  int rank_of(int stage) const;
  int chunk_of(int stage) const;
};

// Throws Exception if the kind does not support the shape. The message says what it supports.
Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace tutti
