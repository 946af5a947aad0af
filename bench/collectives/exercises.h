#pragma once
// The kinds of Exercise; make_exercise() chooses by the operation's form.
#include "bench/collectives/operation.h"

namespace tutti::bench {

using MakeExercise = std::unique_ptr<Exercise>(const Group& group, const Operation& operation, Size size, std::byte* a,
                                               std::byte* b);
MakeExercise make_collective;  // kCollective, kUneven, kCoalesced
MakeExercise make_messages;    // kRing, kPingPong, kBatch
MakeExercise make_objects;     // kBytes, kJson
MakeExercise make_monitored;   // kMonitored

}  // namespace tutti::bench
