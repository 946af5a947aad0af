// What training waits for is a copy. Who writes what is found out once (save_part.h). At most one save is under way,
// so there is one copy of the state; a save that is due earlier waits.
#include "tutti/checkpoint/io/background_saver.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/alarm.h"

namespace tutti {
namespace {

Group group_for_writing(const Group& group) {
  return group && group.size() > 1 ? group.split(0, group.rank(), "checkpoints").or_throw() : Group();
}

}  // namespace

std::string to_json(const BackgroundSaverStats& stats) {
  return nlohmann::ordered_json{{"saved", stats.saved},
                                {"failed", stats.failed},
                                {"newest", stats.newest},
                                {"last_failure", stats.last_failure},
                                {"waited_seconds", stats.waited_seconds},
                                {"planned_seconds", stats.planned_seconds},
                                {"snapshot_seconds", stats.snapshot_seconds},
                                {"snapshot_bytes", stats.snapshot_bytes}}
      .dump();
}

BackgroundSaver::BackgroundSaver(const Group& group, std::string folder, SaveOptions options,
                                 std::shared_ptr<const NodeFolders> nodes, const FolderLock* job)
    : group_(group),
      writing_(group_for_writing(group)),
      folder_(std::move(folder)),
      options_(options),
      nodes_(std::move(nodes)),
      job_(job),
      thread_([this](const Job& job) { write(job); }) {}

BackgroundSaver::~BackgroundSaver() = default;

Status BackgroundSaver::prepare(std::span<const StateBox> boxes) {
  try {
    thread_.wait();
    TUTTI_TRY(planned_.update(group_, boxes, {}, options_));
    return agree(group_, memory_.reserve(snapshot_bytes(boxes, planned_.part().boxes)));
  } catch (const Exception& error) {
    return error.error();
  }
}

Status BackgroundSaver::save(std::span<const StateBox> boxes, const CheckpointFacts& facts) {
  const auto asked = now();
  thread_.wait();
  {
    const MutexLock lock(mutex_);
    stats_.waited_seconds += seconds_since(asked);
  }
  Status begun;
  try {
    begun = save_now(boxes, facts);
  } catch (const Exception& error) {
    begun = error.error();
  }
  if (!begun.ok()) note(facts.step, begun);
  return begun;
}

Status BackgroundSaver::save_in_place(std::span<const StateBox> boxes, const CheckpointFacts& facts) {
  thread_.wait();
  Status ended;
  try {
    const auto part = plan_my_part(group_, boxes, facts, options_);
    ended =
        part.ok() ? write_my_part(group_, folder_, boxes, *part, facts, options_, nodes_.get(), job_) : part.status();
  } catch (const Exception& error) {
    ended = error.error();
  }
  note(facts.step, ended);
  return ended;
}

Status BackgroundSaver::save_now(std::span<const StateBox> boxes, const CheckpointFacts& facts) {
  if (facts.step < 0) return invalid_argument(fmt::format("checkpoint: the step {} is negative", facts.step));
  const auto begin = now();
  TUTTI_TRY(planned_.update(group_, boxes, facts, options_));
  const auto planned = now();
  auto copies = take_snapshot(boxes, planned_.part().boxes, memory_);
  const auto copied = now();
  TUTTI_TRY(agree(group_, copies.status()));
  {
    const MutexLock lock(mutex_);
    stats_.planned_seconds += to_seconds(planned - begin);
    stats_.snapshot_seconds += to_seconds(copied - planned);
    stats_.snapshot_bytes += snapshot_bytes(boxes, planned_.part().boxes);
  }
  SavePart part{.boxes = std::vector<std::size_t>(copies->size()), .most = planned_.part().most};
  std::iota(part.boxes.begin(), part.boxes.end(), std::size_t(0));
  thread_.begin({*std::move(copies), std::move(part), facts});
  return {};
}

Status BackgroundSaver::finish() {
  thread_.wait();
  const MutexLock lock(mutex_);
  if (stats_.failed > 0 && last_.ok() && (!group_ || group_.rank() == 0)) log::warn(alarm());
  return last_;
}

BackgroundSaverStats BackgroundSaver::stats() {
  const MutexLock lock(mutex_);
  return stats_;
}

void BackgroundSaver::write(const Job& job) {
  Status ended;
  try {
    ended = write_my_part(writing_, folder_, job.boxes, job.part, job.facts, options_, nodes_.get(), job_);
  } catch (const Exception& error) {
    ended = error.error();
  } catch (const std::exception& error) {
    ended = Error{.code = Code::kLimit, .detail = fmt::format("the thread that saves threw: {}", error.what())};
  }
  note(job.facts.step, ended);
}

std::string BackgroundSaver::alarm() const {
  const auto all = stats_.failed + stats_.saved;
  return fmt::format("{} of {} checkpoint{} {} not saved, the last {}{}", stats_.failed, all, all == 1 ? "" : "s",
                     stats_.failed == 1 ? "was" : "were", stats_.last_failure,
                     stats_.failed_in_a_row == 0 ? fmt::format("; step {} was saved since", stats_.newest) : "");
}

void BackgroundSaver::note(std::int64_t step, const Status& ended) {
  const MutexLock lock(mutex_);
  last_ = ended;
  const bool tells = !group_ || group_.rank() == 0;
  if (ended.ok()) {
    ++stats_.saved;
    stats_.failed_in_a_row = 0;
    stats_.newest = step;
    if (stats_.failed > 0 && tells) set_alarm(group_, alarm());
    return;
  }
  ++stats_.failed;
  ++stats_.failed_in_a_row;
  stats_.last_failure = fmt::format("that of step {}: {}", step, to_string(ended.error()));
  if (!tells) return;
  set_alarm(group_, alarm());
  // Where a rank is gone its checkpoint is the least that is lost.
  const char* const goes_on = ended.error().code == Code::kPeerLost ? "" : "; training continues";
  const std::string newest =
      stats_.newest < 0 ? "this run has saved none yet" : fmt::format("the last saved step is {}", stats_.newest);
  log::error(fmt::format("the checkpoint of step {} was not saved ({} in a row failed); {}{}: {}", step,
                         stats_.failed_in_a_row, newest, goes_on, to_string(ended.error())));
}

}  // namespace tutti
