#pragma once
// The messages between the ranks of a pipeline and their order. Everything follows from the schedule, which every rank
// knows. So a receiver knows the next message of each peer and can prepare a buffer for it. Pure arithmetic.
#include <optional>
#include <string>
#include <vector>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

struct StageMessage {
  enum class Kind {
    kOutput,    // of `stage`, for the stage after it
    kGradient,  // of the input of `stage`, for the stage before it
  };
  Kind kind;
  int microbatch;
  int stage;     // the stage that produces it
  int from, to;  // ranks of the pipeline, never the same
  bool operator==(const StageMessage&) const = default;
};

// "the output of stage 1 for microbatch 3", "the gradient of stage 2's input for microbatch 3".
std::string to_string(const StageMessage& message);
// A unique number for each message of a step, from 0 to less than 2 x stages x microbatches.
int number_of(const StageMessage& message, int stages);

// The message that an action of `rank` waits for (needed_by) or produces (made_by). None if the adjacent stage does not
// exist or is on the same rank (the turn of a V; a pipeline of one rank).
std::optional<StageMessage> needed_by(const Schedule& schedule, int rank, const Action& action);
std::optional<StageMessage> made_by(const Schedule& schedule, int rank, const Action& action);

// The messages from `peer` to `rank`, in the order in which they are sent.
std::vector<StageMessage> sent(const Schedule& schedule, int peer, int rank);

}  // namespace tutti
