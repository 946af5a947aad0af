#pragma once
// The kinds of Exercise; make_exercise() chooses by the operation's form.
#include "bench/collectives/operation.h"

namespace tutti::bench {

using MakeExercise = std::unique_ptr<Exercise>(const Group& group, const Operation& operation, Size size,
                                               Buffers buffers);
MakeExercise make_collective;  // kCollective, kUneven, kCoalesced
MakeExercise make_messages;    // kRing, kPingPong, kBatch
MakeExercise make_objects;     // kBytes, kJson
MakeExercise make_monitored;   // kMonitored

// Puts on a GPU what `inner` does, which was made for these buffers.
std::unique_ptr<Exercise> make_on_device(std::unique_ptr<Exercise> inner, Buffers buffers);

}  // namespace tutti::bench
