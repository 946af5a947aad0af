#include "tutti/launch/monitor/rank_words.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {

std::string call_words(const ProgressCall& call, const ProgressGroup& group, DescribeCall describe) {
  FlightOperation operation;
  if (describe) describe(call.call, operation);
  // "all_reduce (f32[4], sum)": the number goes behind the verb.
  const std::string& words = operation.call;
  const auto space = words.find(' ');
  const std::string verb = words.empty() ? call.exchange ? "exchange" : "collective" : words.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : words.substr(space);
  return verb + " #" + std::to_string(call.sequence) + rest + " on group " + group.name;
}

double seconds_in_state(const RankProgress& rank) {
  const ProgressCall* const call = rank.current();
  std::int64_t since = rank.step_began;
  if (call && !call->is_over()) {
    since = call->began();
  } else if (call) {
    since = std::max(since, std::max(call->ended, call->began()));
  }
  return since == 0 ? -1 : std::max(0.0, double(rank.read_at - since) * 1e-9);
}

std::string state_words(const RankProgress& rank, DescribeCall describe) {
  if (rank.pid == 0) return {};
  if (!rank.joined) return "in tutti::init()";
  const ProgressGroup* group = nullptr;
  const ProgressCall* const call = rank.current(&group);
  return call && !call->is_over() ? call_words(*call, *group, describe) : "computes";
}

std::string doing_words(const RankProgress& rank, DescribeCall describe) {
  if (rank.pid == 0) return {};
  if (!rank.joined) return "in tutti::init()";
  const std::string step = rank.steps ? "step " + std::to_string(rank.step) + ", " : "";
  const ProgressGroup* group = nullptr;
  const ProgressCall* const call = rank.current(&group);
  const double seconds = seconds_in_state(rank);
  if (!call) {
    if (!rank.steps) return "in no call";
    return step + "for " + seconds_text(seconds);
  }
  const std::string words = call_words(*call, *group, describe);
  if (!call->is_over()) return step + (seconds < 0 ? "in " : "for " + seconds_text(seconds) + " in ") + words;
  return step + "in no call" + (seconds < 0 ? "" : " for " + seconds_text(seconds)) + "; its last was " + words +
         (call->state == FlightState::kFailed ? ", which failed" : "");
}

}  // namespace tutti
