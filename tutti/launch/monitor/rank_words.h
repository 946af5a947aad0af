#pragma once
// What a rank's progress page says, in words: pure functions.
#include <string>

#include "tutti/launch/monitor/options.h"
#include "tutti/trace/progress/reader.h"

namespace tutti {

// "all_reduce #42 (f32[1048576], sum) on group dp"
std::string call_words(const ProgressCall& call, const ProgressGroup& group, DescribeCall describe);
// "step 12, for 3.2 s in all_reduce #42 (f32[1024], sum) on group world"; "step 12, in no call for 40 s; its last was
// ..."; "in tutti::init()"; empty: it has not called that. As of the moment in which the page was read.
std::string doing_words(const RankProgress& rank, DescribeCall describe);
// The same in a few words, for a table: "all_reduce #42 (...) on group world", "computes", "in tutti::init()".
std::string state_words(const RankProgress& rank, DescribeCall describe);
// How long it has been in its call, or, in none, since the last one or the last step; -1: not known.
double seconds_in_state(const RankProgress& rank);

}  // namespace tutti
