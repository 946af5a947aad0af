#include "tutti/checkpoint/checkpointer.h"

namespace tutti {

void Checkpointer::collect(StateDict& state) const {
  for (const auto& part : parts_) part(state);
}

Checkpointer::Resumed Checkpointer::resume() {
  Resumed resumed;
  StateDict wanted(StateUse::kLoad);
  collect(wanted);
  if (const auto found = job_.resume(wanted.boxes_to_load())) {
    const bool weights_only = job_.weights_only() && found->source == ResumeSource::kNamed;
    StateDict state(weights_only ? StateUse::kLoadWeights : StateUse::kLoad);
    collect(state);
    state.load(world_, *found).or_throw();
    resumed = {.step = weights_only ? 0 : found->facts().step, .source = found->source, .checkpoint = found->folder()};
  }
  StateDict now(StateUse::kSave);
  collect(now);
  job_.prepare(now.boxes());
  return resumed;
}

Checkpointer::Due Checkpointer::due(std::int64_t step, bool last) const {
  const auto due = job_.after(step, last);
  return {.save = due.save, .copy = due.copy, .stop = due.stop};
}

bool Checkpointer::after(std::int64_t step, bool last) {
  const Due now = due(step, last);
  after_ = step;
  if (now.save) save(step);
  if (now.copy) copy(step);
  if (now.stop) finish();
  return now.stop;
}

void Checkpointer::save(std::int64_t step) {
  if (!saves()) return;
  StateDict state(StateUse::kSave);
  collect(state);
  state.facts().step = step;
  job_.save(state.boxes(), state.facts());
  saved_ = step;
}

void Checkpointer::copy(std::int64_t step) {
  if (!copies()) return;
  StateDict state(StateUse::kSave);
  collect(state);
  state.facts().step = step;
  job_.copy(state.boxes(), state.facts());
}

void Checkpointer::finish() {
  if (after_ > saved_) save(after_);
  job_.finish();
}

}  // namespace tutti
