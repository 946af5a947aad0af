// Before each action the messages that it and the next one need are expected, so that the next one's travels while this
// one computes. A peer's messages are expected in the order in which the peer sends them, up to the one that is needed:
// then each has its place when it comes, however differently two ranks order their work.
//
// Between two stages on one rank (the turn of a V, a pipeline of one rank) nothing travels: the tensor is handed over.
#include "tutti/parallel/pipeline/interpreter.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/tensor/device_region.h"
#include "tutti/tensor/live_bytes.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

const char* region_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "pipeline forward";
    case ActionKind::kBackward:
      return "pipeline backward";
    case ActionKind::kBackwardInput:
      return "pipeline backward of the input";
    case ActionKind::kBackwardWeight:
      return "pipeline backward of the weights";
  }
  return "pipeline";
}

bool is_message_lost(const Error& error) { return !error.group.empty(); }  // else a chunk's own
double seconds_now() { return to_seconds(now().time_since_epoch()); }

// c10::Error adds a stack after the first line.
std::string first_line(const char* text) {
  const std::string all(text);
  return all.substr(0, all.find('\n'));
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, int rank, const std::vector<Chunk>& chunks,
                         const PipelineOptions& options, const StepOptions& step, StageMessages& messages)
    : schedule_(schedule),
      rank_(rank),
      actions_(schedule.actions[std::size_t(rank)]),
      chunks_(chunks),
      options_(options),
      step_(step),
      messages_(messages),
      peers_(std::size_t(schedule.shape.ranks)),
      last_backwards_(chunks.size()),
      kept_(chunks.size() * std::size_t(schedule.shape.microbatches)) {
  find_peers();
  find_last_backwards();
  if (schedule.rank_of(schedule.shape.stages() - 1) == rank) losses_.resize(std::size_t(schedule.shape.microbatches));
  if (options.record_times) result_.times.reserve(actions_.size());
}

void Interpreter::find_peers() {
  for (const Action& action : actions_) {
    const auto needed = needed_by(schedule_, rank_, action);
    if (needed && peers_[std::size_t(needed->from)].sends.empty())
      peers_[std::size_t(needed->from)].sends = sent(schedule_, needed->from, rank_);
  }
}

void Interpreter::find_last_backwards() {
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    LastBackward& last = last_backwards_[std::size_t(actions_[i].chunk)];
    const ActionKind kind = actions_[i].kind;
    if (kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput) last.begins = i;
    if (kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight) last.ends = i;
  }
}

StepResult Interpreter::run() {
  const c10::AutoGradMode gradients(!schedule_.shape.forward_only);
  messages_.begin(schedule_.shape.stages());
  for (std::size_t i = 0; i < actions_.size(); ++i) act(i);
  messages_.finish();
  result_.losses = values_of(losses_);
  return std::move(result_);
}

void Interpreter::expect(std::size_t action) {
  if (action >= actions_.size()) return;
  const auto needed = needed_by(schedule_, rank_, actions_[action]);
  if (!needed) return;
  Peer& peer = peers_[std::size_t(needed->from)];
  const auto wanted = std::find(peer.sends.begin() + std::ptrdiff_t(peer.expected), peer.sends.end(), *needed);
  if (wanted == peer.sends.end()) return;  // expected already
  for (const auto end = std::size_t(wanted - peer.sends.begin()) + 1; peer.expected < end; ++peer.expected)
    messages_.expect(peer.sends[peer.expected]);
}

void Interpreter::act(std::size_t number) {
  const Action& action = actions_[number];
  const LastBackward& last = last_backwards_[std::size_t(action.chunk)];
  expect(number);
  expect(number + 1);
  messages_.look();
  if (number == last.begins && options_.before_last_backward && !schedule_.shape.forward_only)
    options_.before_last_backward(action.chunk);
  switch (action.kind) {
    case ActionKind::kForward:
      forward(action);
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      backward(action);
      break;
    case ActionKind::kBackwardWeight:
      backward_weight(action);
      break;
  }
  if (number == last.ends && options_.after_last_backward && !schedule_.shape.forward_only)
    options_.after_last_backward(action.chunk);
}

std::string Interpreter::place(const Action& action) const {
  return "stage " + std::to_string(stage_of(action)) + ", " + to_string(action, schedule_.shape.chunks) +
         " (microbatch " + std::to_string(action.microbatch) + ")";
}

// What is the chunk's: timed, traced, and its exceptions say where they were thrown.
template <class Run>
void Interpreter::timed(const Action& action, Run&& run) {
  const DeviceRegion region(region_name(action.kind), options_.messages.device,
                            [&] { return to_string(action, schedule_.shape.chunks); });
  const double begin = options_.record_times ? seconds_now() : 0;
  try {
    run();
  } catch (const Exception& error) {
    if (is_message_lost(error.error())) throw;
    throw Exception(Error{.code = error.error().code, .detail = place(action) + ": " + error.what()});
  } catch (const c10::OutOfMemoryError&) {
    throw;  // the trainer says what the rank holds
  } catch (const std::exception& error) {
    throw Exception(Error{.code = Code::kAborted, .detail = place(action) + " threw: " + first_line(error.what())});
  }
  if (options_.record_times) result_.times.push_back({action, begin, seconds_now()});
}

at::Tensor Interpreter::run_chunk(const Action& action, const at::Tensor& input) {
  at::Tensor output;
  timed(action, [&] { output = chunks_[std::size_t(action.chunk)](action.microbatch, input); });
  TUTTI_REQUIRE(output.defined() && output.is_floating_point(), place(action), " returned ", describe(output),
                ", expected an output, or a loss, of floating-point numbers");
  return output;
}

void Interpreter::forward(const Action& action) {
  Kept& mine = kept(action.chunk, action.microbatch);
  const int stage = stage_of(action);
  const bool learns = !schedule_.shape.forward_only;
  if (const auto message = needed_by(schedule_, rank_, action)) mine.input = messages_.take(*message);
  if (mine.input.defined() && learns) mine.input.requires_grad_();

  const std::int64_t bytes = options_.count_bytes ? live_bytes() : 0;
  at::Tensor output = run_chunk(action, mine.input);
  if (learns) {
    mine.output = GraphEnd(output);
    std::int64_t more = 0;
    if (options_.count_bytes) {
      more = live_bytes() - bytes;
      if (output.storage().use_count() == 1) more -= std::int64_t(output.storage().nbytes());  // nobody keeps it
      if (mine.input.defined()) more += std::int64_t(mine.input.nbytes());
    }
    note_kept(mine, more);
  } else {
    mine.input = at::Tensor();
  }

  if (is_last(stage))
    take_loss(action, output);
  else if (const auto message = made_by(schedule_, rank_, action))
    messages_.send(*message, output);
  else
    kept(schedule_.chunk_of(stage + 1), action.microbatch).input = output.detach();
}

void Interpreter::take_loss(const Action& action, const at::Tensor& loss) {
  TUTTI_REQUIRE(loss.numel() == 1, place(action), " returned ", describe(loss),
                " on the last stage, expected the loss, one number");
  losses_[std::size_t(action.microbatch)] = loss.detach().reshape({});
  if (schedule_.shape.forward_only) return;
  const double weight =
      step_.weights.empty() ? 1.0 / schedule_.shape.microbatches : step_.weights[std::size_t(action.microbatch)];
  TUTTI_REQUIRE(loss.requires_grad(), place(action), " returned a loss that nothing can learn from: no parameter has ",
                "a part in it that requires a gradient (evaluation: PipelineShape::forward_only)");
  kept(action.chunk, action.microbatch).gradient = at::full_like(loss.detach(), weight * step_.scale);
}

void Interpreter::backward(const Action& action) {
  Kept& mine = kept(action.chunk, action.microbatch);
  if (const auto message = needed_by(schedule_, rank_, action)) mine.gradient = messages_.take(*message);
  timed(action, [&] {
    if (!mine.output.requires_grad()) return;  // a first stage that is frozen
    std::optional<WeightGradients::Scope> put_off;
    if (action.kind == ActionKind::kBackwardInput) put_off.emplace(mine.weights);
    std::move(mine.output).backward(mine.gradient);
  });
  mine.gradient = at::Tensor();
  if (stage_of(action) > 0) pass_gradient_back(action);
  mine.input = at::Tensor();
  if (action.kind == ActionKind::kBackward) let_go(mine);
}

void Interpreter::pass_gradient_back(const Action& action) {
  const at::Tensor gradient = kept(action.chunk, action.microbatch).input.grad();
  TUTTI_REQUIRE(gradient.defined(), place(action), ": the input got no gradient; does the chunk use it, and not a ",
                "detached copy?");
  if (const auto message = made_by(schedule_, rank_, action))
    messages_.send(*message, gradient);
  else
    kept(schedule_.chunk_of(stage_of(action) - 1), action.microbatch).gradient = gradient;
}

void Interpreter::backward_weight(const Action& action) {
  Kept& mine = kept(action.chunk, action.microbatch);
  timed(action, [&] { mine.weights.run(); });
  let_go(mine);
}

void Interpreter::note_kept(Kept& one, std::int64_t bytes) {
  one.bytes = bytes;
  result_.most_kept = std::max(result_.most_kept, ++kept_now_);
  result_.most_bytes = std::max(result_.most_bytes, bytes_now_ += bytes);
}
void Interpreter::let_go(const Kept& one) {
  --kept_now_;
  bytes_now_ -= one.bytes;
}

}  // namespace tutti
