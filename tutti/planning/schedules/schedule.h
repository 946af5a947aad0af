#pragma once
// What each rank of a pipeline does, in order. A schedule is data: a list of actions a rank, which one interpreter
// runs, one simulator times and one drawing shows. Who sends to whom follows from the placement of the stages; messages
// are matched by (microbatch, stage), so that any number of microbatches will do.
//
// A pipeline of `ranks` ranks has ranks * chunks stages, each a run of consecutive layers ("virtual stages" where a
// rank has more than one chunk). Pure arithmetic; mistakes throw Exception.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class ScheduleKind {
  kFillDrain,              // GPipe (Huang et al. 2018, arXiv:1811.06965): all forwards, then all backwards
  kOneForwardOneBackward,  // PipeDream-Flush (Narayanan et al. 2020, arXiv:2006.09503), Megatron-LM's without chunks
  kInterleaved,   // the same over several chunks a rank (Narayanan et al. 2021, arXiv:2104.04473), Megatron-LM's with
  kZeroBubbleH1,  // backward in two halves, memory of 1F1B (Qi et al. 2023, arXiv:2401.10241)
  kZeroBubbleV,   // two chunks a rank, laid out as a V (Qi et al. 2024, arXiv:2405.15362, "V-ZB")
};
inline constexpr ScheduleKind kScheduleKinds[] = {ScheduleKind::kFillDrain, ScheduleKind::kOneForwardOneBackward,
                                                  ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1,
                                                  ScheduleKind::kZeroBubbleV};
// As options spell it: "fill-drain", "1f1b", "interleaved", "zb-h1", "zb-v".
std::string_view name(ScheduleKind kind);
std::optional<ScheduleKind> schedule_kind(std::string_view name);

enum class ActionKind {
  kForward,
  kBackward,        // gradients of the input and of the weights
  kBackwardInput,   // of the input alone, which the stage before waits for
  kBackwardWeight,  // of the weights, any time after kBackwardInput
};

struct Action {
  ActionKind kind;
  int microbatch;
  int chunk;  // of the rank, 0 to chunks - 1
  bool operator==(const Action&) const = default;
};
// "F0a", "B3b", "I2a", "W2a": the letter of the chunk is left out where there is but one.
std::string to_string(const Action& action, int chunks);
std::string to_string(std::span<const Action> actions, int chunks);  // with blanks between

struct PipelineShape {
  int ranks = 1;         // Megatron's pipeline-model-parallel size
  int microbatches = 1;  // of a step
  int chunks = 1;        // on each rank: kInterleaved 2 or more, kZeroBubbleV 2, all others 1
  // kInterleaved: so many microbatches go through a chunk before the next chunk has its turn, at least `ranks`
  // (--microbatch-group-size-per-virtual-pipeline-stage); 0: `ranks`.
  int microbatch_group = 0;
  bool forward_only = false;  // evaluation: no backward, nothing is kept

  int stages() const { return ranks * chunks; }
};

struct Schedule {
  ScheduleKind kind;
  PipelineShape shape;
  std::vector<std::vector<Action>> actions;  // of each rank

  // Which stage a chunk of a rank is. Stage s lies on rank s % ranks, or, as a V, on 0, 1, ... p-1, p-1, ... 0.
  int stage_of(int rank, int chunk) const;
  int rank_of(int stage) const;
  int chunk_of(int stage) const;
};

// The shape is taken apart by kind: throws Exception where the kind cannot take it, with what it can.
Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace tutti
