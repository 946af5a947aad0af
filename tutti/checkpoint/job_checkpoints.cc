// What a trainer's options mean, in the order of a job: it has the folder for itself (folder_lock.h), finds where to
// begin (the newer of a copy in memory, after a restart, and of what is on disk), has the memory for its saves before
// the first step, saves when it is due, and tells at its end whether the last of its work is kept. The work itself is
// done by the parts: resume.cc, background_saver.cc, memory/memory_copies.cc.
#include "tutti/checkpoint/job_checkpoints.h"

#include <fmt/format.h>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/checkpoint/folder/shared_folder.h"
#include "tutti/comm/agree.h"

namespace tutti {

Status check(const JobCheckpointOptions& options) {
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

JobCheckpoints::JobCheckpoints(const Group& world, JobCheckpointOptions options)
    : world_(world), options_(std::move(options)) {
  if (copies()) {
    copies_ = std::make_unique<MemoryCopies>(world_, was_restarted());
    if (world_.rank() == 0 && !copies_->has_neighbour() && env("TORCHELASTIC_MAX_RESTARTS") == "0")
      log::warn("copies in memory are for who is started again, and --max-restarts of tutti run is 0");
  }
  if (!saves()) return;
  if (options_.folder_per_node) {
    node_folders_ = std::make_shared<NodeFolders>(meet_node_folders(world_, options_.folder).or_throw());
    take_folder();
  } else {
    take_folder();  // first: who has it tidies up, and takes what check_shared_folder() leaves there for a moment along
    check_shared_folder(world_, options_.folder).or_throw();
  }
  const SaveOptions save{.keep = options_.keep, .keep_every = options_.keep_every};
  saver_ = std::make_unique<BackgroundSaver>(world_, options_.folder, save, node_folders_,
                                             folder_lock_ ? &*folder_lock_ : nullptr);
}

// Before it looks where to begin: nobody else is to save there from now on.
void JobCheckpoints::take_folder() {
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

std::optional<ResumePoint> JobCheckpoints::resume(std::span<const SavedBox> wanted) {
  const bool restarted = was_restarted();
  if (auto copy = copies_ && restarted ? newest_copy(wanted) : std::nullopt) {
    if (auto later = later_on_disk(copy->facts().step, wanted)) return later;
    if (world_.rank() == 0)
      log::info(fmt::format("goes on after step {}, from {}", copy->facts().step, copy->folder()));
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

std::optional<CheckpointReader> JobCheckpoints::newest_copy(std::span<const SavedBox> wanted) {
  auto found = copies_->newest(wanted);
  world_.status().or_throw();
  if (!found.ok()) {
    if (world_.rank() == 0) log::warn("the copies in memory cannot be used: " + to_string(found.error()));
    return {};
  }
  if (!*found && world_.rank() == 0) log::info("no copy in memory is there as a whole");
  return *std::move(found);
}

// What was saved after that step, and verifies.
std::optional<ResumePoint> JobCheckpoints::later_on_disk(std::int64_t step, std::span<const SavedBox> wanted) const {
  const ResumeOptions options{
      .folder = options_.folder, .restarted = true, .node_folders = node_folders_.get(), .wanted = wanted};
  if (!saves() || newest_saved_step(world_, options).or_throw() <= step) return {};
  auto found = resume_point(world_, options);
  world_.status().or_throw();
  if (found.ok() && *found && (*found)->facts().step > step) return *std::move(found);
  return {};
}

void JobCheckpoints::prepare(std::span<const SavedBox> boxes) {
  if (saver_ && options_.in_background) saver_->prepare(boxes).or_throw();
  if (copies_) copies_->prepare(boxes).or_throw();
}

JobCheckpoints::Due JobCheckpoints::after(std::int64_t step, bool last) const {
  const bool stop = saves() && world_.should_stop();
  const auto multiple_of = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
  return {.save = saves() && (stop || last || multiple_of(options_.interval)),
          .copy = !stop && !last && multiple_of(options_.memory_copy_interval),
          .stop = stop};
}

void JobCheckpoints::save(std::span<const SavedBox> boxes, const CheckpointFacts& facts) {
  if (!saver_) return;
  if (options_.in_background) {
    (void)saver_->save(boxes, facts);  // told and counted there
  } else {
    (void)saver_->save_in_place(boxes, facts);
  }
}

void JobCheckpoints::copy(std::span<const SavedBox> boxes, const CheckpointFacts& facts) {
  if (!copies_) return;
  const Status taken = copies_->take(boxes, facts);
  world_.status().or_throw();
  if (!taken.ok() && world_.rank() == 0) log::error("no copy in memory was taken: " + to_string(taken.error()));
}

void JobCheckpoints::finish() {
  if (copies_) copies_->wait();
  if (!saver_) return;
  const Status last = saver_->finish();
  if (last.ok()) return;
  Error error = last.error();
  error.detail = "what was trained since the last checkpoint is not saved: " + error.detail;
  throw Exception(std::move(error));
}

BackgroundSaverStats JobCheckpoints::stats() { return saver_ ? saver_->stats() : BackgroundSaverStats(); }

MemoryCopiesStats JobCheckpoints::copy_stats() { return copies_ ? copies_->stats() : MemoryCopiesStats(); }

}  // namespace tutti
