#pragma once
// What the ranks of a pipeline send one another, and in which order. All of it follows from the schedule, which every
// rank has: so a receiver knows what each peer will send next, and can have a place ready for it. Pure arithmetic.
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
  int stage;     // that makes it
  int from, to;  // ranks of the pipeline, never the same
  bool operator==(const StageMessage&) const = default;
};

// "the output of stage 1 for microbatch 3", "the gradient of stage 2's input for microbatch 3".
std::string to_string(const StageMessage& message);
// Tells the messages of one step apart: from 0 on, less than 2 x stages x microbatches.
int number_of(const StageMessage& message, int stages);

// What an action of `rank` waits for, and what it makes for others. None where the stage beside it does not exist, or
// lies on the same rank (a V's turn; a pipeline of one rank).
std::optional<StageMessage> needed_by(const Schedule& schedule, int rank, const Action& action);
std::optional<StageMessage> made_by(const Schedule& schedule, int rank, const Action& action);

// What `peer` sends to `rank`, in the order in which it does.
std::vector<StageMessage> sent(const Schedule& schedule, int peer, int rank);

}  // namespace tutti
