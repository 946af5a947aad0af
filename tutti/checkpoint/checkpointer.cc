// In the order of a job: it locks its folder (folder/folder_lock.h), finds the checkpoint to resume from (after a
// restart the newer of a copy in memory and of what is on disk), gets the memory for its saves before the first step,
// saves when a save is due, and reports at its end whether the last of its work is kept.
#include "tutti/checkpoint/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/checkpoint/folder/shared_folder.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/stop_request.h"
#include "tutti/comm/stream_calls.h"

namespace tutti {

Status check(const CheckpointerOptions& options) {
  const auto usage = [](std::string detail, std::string hint = {}) {
    return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
  };
  if (options.resume.empty()) return usage("--resume needs auto, never or the path of a checkpoint");
  if (options.keep_every > 0 && options.keep == 0)
    return usage("--keep-every is for --keep: without it all checkpoints stay");
  if (options.folder.empty() && options.folder_per_node) return usage("--save-dir-per-node is for --save-dir");
  if (options.folder.empty() && (options.interval > 0 || options.keep > 0))
    return usage("--save-interval and --keep are for --save-dir, which is not given",
                 "say where to save: --save-dir DIR");
  return {};
}

Checkpointer::Checkpointer(const Group& world, CheckpointerOptions options)
    : world_(world), options_(std::move(options)) {
  if (copies()) {
    copies_ = std::make_unique<MemoryCopies>(world_, was_restarted());
    if (world_.rank() == 0 && !copies_->has_neighbour() && env("TORCHELASTIC_MAX_RESTARTS") == "0")
      log::warn("copies in memory have no effect: --max-restarts of tutti run is 0");
  }
  if (!saves()) return;
  if (world_) listen_for_stop(world_);  // due() acts on it
  if (options_.folder_per_node) {
    node_folders_ = std::make_shared<NodeFolders>(meet_node_folders(world_, options_.folder).or_throw());
    lock_folder();
  } else {
    lock_folder();  // first: the owner of the lock removes leftovers, files of check_shared_folder() included
    check_shared_folder(world_, options_.folder).or_throw();
  }
  const SaveOptions save{.keep = options_.keep, .keep_every = options_.keep_every, .on_saved = options_.on_saved};
  saver_ = std::make_unique<BackgroundSaver>(world_, options_.folder, save, node_folders_,
                                             folder_lock_ ? &*folder_lock_ : nullptr);
}

Checkpointer::~Checkpointer() {
  if (!saves() || after_ <= saved_ || unwinding_.is_past() || !world_.status().ok() || world_.rank() != 0) return;
  const auto first = std::min(std::max(saved_, resumed_) + 1, after_);
  log::warn(fmt::format(
      "{} not saved in {}: the program ended without Checkpointer::finish()",
      first == after_ ? fmt::format("step {} is", after_) : fmt::format("steps {} to {} are", first, after_),
      options_.folder));
}

// Before it looks where to begin: nobody else is to save there from now on.
void Checkpointer::lock_folder() {
  const auto take = [&]() -> Status {
    TUTTI_TRY(make_folder(options_.folder));
    const FolderWait wait{.patience = world_ ? std::min(kFolderPatience, world_.timeout() / 2) : kFolderPatience,
                          .restarted = was_restarted()};
    folder_lock_.emplace(TUTTI_TRY(FolderLock::take(options_.folder, FolderUse::kJob, wait)));
    return {};
  };
  const int rank = world_ ? world_.rank() : 0;
  const bool leads = node_folders_ ? node_folders_->places.leads(rank) : rank == 0;
  const Status taken = leads ? take() : Status();
  agree(world_, node_folders_ ? told_with_host(taken) : taken).or_throw();
}

std::optional<ResumePoint> Checkpointer::find(std::span<const StateBox> wanted) {
  const bool restarted = was_restarted();
  if (auto copy = copies_ && restarted ? newest_copy(wanted) : std::nullopt) {
    if (auto later = later_on_disk(copy->facts().step, wanted)) return later;
    if (world_.rank() == 0)
      log::info(fmt::format("resuming after step {} from {}", copy->facts().step, copy->folder()));
    return ResumePoint{*std::move(copy), ResumeSource::kMemory};
  }
  return resume_point(world_, {.folder = options_.folder,
                               .resume = options_.resume,
                               .restarted = saves() && restarted,
                               .weights_only = options_.weights_only,
                               .node_folders = node_folders_.get(),
                               .wanted = wanted})
      .or_throw();
}

std::optional<CheckpointReader> Checkpointer::newest_copy(std::span<const StateBox> wanted) {
  auto found = copies_->newest(wanted);
  world_.status().or_throw();
  if (!found.ok()) {
    if (world_.rank() == 0) log::warn("the copies in memory cannot be used: " + to_string(found.error()));
    return {};
  }
  if (!*found && world_.rank() == 0) log::info("no complete copy in memory was found");
  return *std::move(found);
}

// What was saved after that step, and verifies.
std::optional<ResumePoint> Checkpointer::later_on_disk(std::int64_t step, std::span<const StateBox> wanted) const {
  const ResumeOptions options{
      .folder = options_.folder, .restarted = true, .node_folders = node_folders_.get(), .wanted = wanted};
  if (!saves() || newest_saved_step(world_, options).or_throw() <= step) return {};
  auto found = resume_point(world_, options);
  world_.status().or_throw();
  if (found.ok() && *found && (*found)->facts().step > step) return *std::move(found);
  return {};
}

void Checkpointer::collect(StateDict& state) const {
  for (const auto& part : parts_) part(state);
}

Checkpointer::Resumed Checkpointer::resume() {
  Resumed resumed;
  StateDict wanted(StateUse::kLoad);
  collect(wanted);
  if (const auto found = find(wanted.boxes_to_load())) {
    const bool weights_only = options_.weights_only && found->source == ResumeSource::kNamed;
    StateDict state(weights_only ? StateUse::kLoadWeights : StateUse::kLoad);
    collect(state);
    state.load(world_, *found).or_throw();
    resumed = {.step = weights_only ? 0 : found->facts().step, .source = found->source, .checkpoint = found->folder()};
  }
  resumed_ = resumed.step;
  StateDict now(StateUse::kSave);
  collect(now);
  if (saver_ && options_.in_background) saver_->prepare(now.boxes()).or_throw();
  if (copies_) copies_->prepare(now.boxes()).or_throw();
  return resumed;
}

Checkpointer::Due Checkpointer::due(std::int64_t step, bool last) const {
  const bool stop = saves() && world_.should_stop();
  const auto multiple_of = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
  return {.save = saves() && (stop || last || multiple_of(options_.interval)),
          .copy = !stop && !last && multiple_of(options_.memory_copy_interval),
          .stop = stop};
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
  if (!saver_) return;
  await_stream_calls().or_throw();
  StateDict state(StateUse::kSave);
  collect(state);
  state.facts().step = step;
  // An error is reported and counted there.
  (void)(options_.in_background ? saver_->save(state.boxes(), state.facts())
                                : saver_->save_in_place(state.boxes(), state.facts()));
  saved_ = step;
}

void Checkpointer::copy(std::int64_t step) {
  if (!copies_) return;
  await_stream_calls().or_throw();
  StateDict state(StateUse::kSave);
  collect(state);
  state.facts().step = step;
  const Status taken = copies_->take(state.boxes(), state.facts());
  world_.status().or_throw();
  if (!taken.ok() && world_.rank() == 0) log::error("no copy in memory was taken: " + to_string(taken.error()));
}

void Checkpointer::finish() {
  if (after_ > saved_) save(after_);
  if (copies_) copies_->wait();
  if (!saver_) return;
  const Status last = saver_->finish();
  if (last.ok()) return;
  Error error = last.error();
  error.detail = "the training since the last checkpoint is not saved: " + error.detail;
  throw Exception(std::move(error));
}

BackgroundSaverStats Checkpointer::stats() { return saver_ ? saver_->stats() : BackgroundSaverStats(); }

MemoryCopiesStats Checkpointer::copy_stats() { return copies_ ? copies_->stats() : MemoryCopiesStats(); }

}  // namespace tutti
