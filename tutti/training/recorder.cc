#include "tutti/training/recorder.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/comm/agree.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/metrics/timers_over_ranks.h"
#include "tutti/trace/profile_table.h"

namespace tutti {
namespace {

bool is_file(const std::string& trace) { return std::filesystem::path(trace).extension() == ".json"; }

// Each rank's own file, and nothing of another run beside it.
Status prepare_traces(const Group& world, const std::string& folder) {
  TUTTI_TRY(make_folder(folder));
  TUTTI_TRY(try_to_replace(rank_trace_path(folder, world.rank())));
  if (const int removed = TUTTI_TRY(remove_traces_of_more_ranks(world, folder)); removed > 0)
    log::info(fmt::format("{}: removed the traces of {} rank{} of an earlier, larger run", folder, removed,
                          removed == 1 ? "" : "s"));
  return {};
}

// One for all ranks.
Status prepare_trace(const Group& world, const std::filesystem::path& file) {
  if (file.has_parent_path()) TUTTI_TRY(make_folder(file.parent_path()));
  return world.rank() == 0 ? try_to_replace(file) : Status();
}

}  // namespace

Recorder::Recorder(const Group& world, RecorderOptions options) : world_(world), options_(std::move(options)) {
  Status made;
  const std::string& trace = options_.trace;
  if (!trace.empty())
    made = of_option("--trace", is_file(trace) ? prepare_trace(world, trace) : prepare_traces(world, trace));
  if (made.ok() && !options_.tensorboard.empty() && world.rank() == options_.tensorboard_rank) {
    auto events = EventFile::create(options_.tensorboard);
    if (events.ok()) {
      events_ = std::move(*events);
    } else {
      made = of_option(options_.tensorboard_option, events.status());
    }
  }
  agree(world, made).or_throw();
  if (traces()) start_trace();
}

void Recorder::step(std::int64_t step, const TrainingStep& made) {
  phases_.add(made);
  if (!events_) return;
  if (options_.step_scalars) {
    if (made.loss) events_->add_scalar("train/loss", *made.loss, step);
    events_->add_scalar("train/lr", made.lr, step);
    events_->add_scalar("train/samples_per_s", made.samples / made.seconds, step);
    const std::pair<const char*, double> phases[] = {
        {"time/data", made.data},           {"time/forward", made.forward},
        {"time/backward", made.backward},   {"time/exposed_communication", made.exposed},
        {"time/optimizer", made.optimizer}, {"time/step", made.seconds}};
    for (const auto& [tag, seconds] : phases) events_->add_scalar(tag, seconds, step);
  }
  add(step, made.scalars);
}

void Recorder::add(std::int64_t step, const Scalars& scalars) {
  if (!events_) return;
  for (const Scalar& scalar : scalars) events_->add_scalar(scalar.tag, scalar.value, scalar.at < 0 ? step : scalar.at);
}

void Recorder::finish() {
  if (!traces()) return;
  const Trace trace = stop_trace();
  if (options_.write_trace) return options_.write_trace(trace);
  if (options_.profile) {
    const auto spread = timers_over_ranks(world_, phases_.readings());
    if (world_.rank() == 0)
      fmt::print(stderr, "rank 0, {} steps:\n{}{}", phases_.steps(), profile_table(trace), spread_text(spread));
  }
  if (options_.trace.empty()) return;
  if (is_file(options_.trace)) {
    write_chrome_trace(world_, trace, options_.trace).or_throw();
  } else {
    write_rank_trace(world_, trace, options_.trace).or_throw();
  }
  if (world_.rank() == 0)
    fmt::print(stderr, "{}: open it in https://ui.perfetto.dev{}\n", options_.trace,
               is_file(options_.trace) ? "" : fmt::format(" after `tutti trace merge {}`", options_.trace));
}

}  // namespace tutti
