#include "tutti/planning/schedules/messages.h"

namespace tutti {
namespace {

using MessageKind = StageMessage::Kind;

std::optional<StageMessage> message(const Schedule& schedule, MessageKind kind, int microbatch, int from_stage,
                                    int to_stage) {
  if (from_stage < 0 || to_stage < 0 || from_stage >= schedule.shape.stages() || to_stage >= schedule.shape.stages())
    return {};
  const int from = schedule.rank_of(from_stage), to = schedule.rank_of(to_stage);
  if (from == to) return {};
  return StageMessage{.kind = kind, .microbatch = microbatch, .stage = from_stage, .from = from, .to = to};
}

}  // namespace

std::string to_string(const StageMessage& message) {
  const std::string stage = std::to_string(message.stage);
  const std::string what = message.kind == MessageKind::kOutput ? "the output of stage " + stage
                                                                : "the gradient of stage " + stage + "'s input";
  return what + " for microbatch " + std::to_string(message.microbatch);
}

int number_of(const StageMessage& message, int stages) {
  return (message.microbatch * stages + message.stage) * 2 + int(message.kind);
}

std::optional<StageMessage> needed_by(const Schedule& schedule, int rank, const Action& action) {
  const int stage = schedule.stage_of(rank, action.chunk);
  switch (action.kind) {
    case ActionKind::kForward:
      return message(schedule, MessageKind::kOutput, action.microbatch, stage - 1, stage);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return message(schedule, MessageKind::kGradient, action.microbatch, stage + 1, stage);
    case ActionKind::kBackwardWeight:
      break;
  }
  return {};
}

std::optional<StageMessage> made_by(const Schedule& schedule, int rank, const Action& action) {
  const int stage = schedule.stage_of(rank, action.chunk);
  switch (action.kind) {
    case ActionKind::kForward:
      return message(schedule, MessageKind::kOutput, action.microbatch, stage, stage + 1);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return message(schedule, MessageKind::kGradient, action.microbatch, stage, stage - 1);
    case ActionKind::kBackwardWeight:
      break;
  }
  return {};
}

std::vector<StageMessage> sent(const Schedule& schedule, int peer, int rank) {
  std::vector<StageMessage> messages;
  for (const Action& action : schedule.actions[std::size_t(peer)])
    if (const auto made = made_by(schedule, peer, action); made && made->to == rank) messages.push_back(*made);
  return messages;
}

}  // namespace tutti
