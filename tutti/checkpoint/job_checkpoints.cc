#include "tutti/checkpoint/job_checkpoints.h"

#include "tutti/checkpoint/resume.h"
#include "tutti/checkpoint/shared_folder.h"

namespace tutti {

Status check(const JobCheckpointOptions& options) {
  const auto usage = [](std::string detail, std::string hint = {}) {
    return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
  };
  if (options.resume.empty()) return usage("--resume needs auto, never or the path of a checkpoint");
  if (options.keep_every > 0 && options.keep == 0)
    return usage("--keep-every is for --keep: without it all checkpoints stay");
  if (options.folder.empty() && (options.interval > 0 || options.keep > 0))
    return usage("--save-interval and --keep are for --save-dir, which is not given",
                 "say where to save: --save-dir DIR");
  return {};
}

JobCheckpoints::JobCheckpoints(const Group& world, JobCheckpointOptions options)
    : world_(world), options_(std::move(options)) {
  if (!saves()) return;
  check_shared_folder(world_, options_.folder).or_throw();
  const SaveOptions save{.keep = options_.keep, .keep_every = options_.keep_every};
  saver_ = std::make_unique<BackgroundSaver>(world_, options_.folder, save);
}

std::optional<CheckpointReader> JobCheckpoints::resume() const {
  return resume_point(world_,
                      {.folder = options_.folder, .resume = options_.resume, .restarted = saves() && was_restarted()})
      .or_throw();
}

void JobCheckpoints::prepare(std::span<const SavedBox> boxes) {
  if (saver_ && options_.in_background) saver_->prepare(boxes).or_throw();
}

JobCheckpoints::Due JobCheckpoints::after(std::int64_t step, bool last) const {
  if (!saves()) return {};
  const bool stop = world_.should_stop();
  return {.save = stop || last || (options_.interval > 0 && step % options_.interval == 0), .stop = stop};
}

void JobCheckpoints::save(std::span<const SavedBox> boxes, const CheckpointFacts& facts) {
  if (!saver_) return;
  if (options_.in_background) {
    (void)saver_->save(boxes, facts);  // told and counted there
  } else {
    (void)saver_->save_in_place(boxes, facts);
  }
}

void JobCheckpoints::finish() {
  if (saver_) saver_->finish().or_throw();
}

BackgroundSaverStats JobCheckpoints::stats() { return saver_ ? saver_->stats() : BackgroundSaverStats(); }

}  // namespace tutti
