// Twice a second the monitor reads each rank's progress page and its /proc entry. stalls.cc judges; this file adds the
// clock and prints.
#include "tutti/launch/monitor/monitor.h"

#include <algorithm>
#include <csignal>

#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/monitor/stacks.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/trace/flight/dump.h"

namespace tutti::launch {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(500);
constexpr auto kStacksLimit = std::chrono::seconds(15);
constexpr auto kNamesLimit = std::chrono::seconds(15);  // for addr2line
constexpr std::size_t kShortStack = 12;                 // frames of a rank in the report of a hang

std::string rank_and_pid(const Worker& worker) {
  return "rank " + std::to_string(worker.rank()) + " (pid " + std::to_string(worker.pid()) + ")";
}

// The rank's own message about its end: in its TORCHELASTIC_ERROR_FILE, in its page, or its traceback.
std::string message_of(const Worker& worker) {
  const std::string in_file = error_file_message(worker.error_file());
  if (!in_file.empty()) return in_file;
  const std::string in_page = worker.progress().read().message;
  return in_page.empty() ? worker.traceback() : in_page;
}

// Steps a second, averaged over some seconds; -1 until a rank that has counted a step was seen twice.
double smoothed_rate(double rate, const trace::RankProgress& before, const trace::RankProgress& after) {
  constexpr double kOver = 5;  // seconds
  const double seconds = double(after.read_at - before.read_at) * 1e-9;
  if (before.pid != after.pid || seconds <= 0 || after.steps < before.steps || after.steps == 0) return -1;
  const double fresh = double(after.steps - before.steps) / seconds;
  if (rate < 0) return fresh;
  return rate + (fresh - rate) * std::min(1.0, seconds / kOver);
}

}  // namespace

Monitor::Monitor(const MonitorOptions& options, std::string nobody, std::string folder,
                 std::function<void(const std::string&)> say)
    : options_(options),
      nobody_(std::move(nobody)),
      folder_(std::move(folder)),
      say_(std::move(say)),
      limit_(options.hang_timeout) {
  kills_ = cgroup_memory().kills;
}

void Monitor::listen(PollSet& events, Workers& workers) {
  if (!workers.any_alive()) return;
  events.wake_at(next_check_);
  if (stacks_) stacks_->listen(events);
}

std::optional<Hang> Monitor::check(Workers& workers) {
  if (!workers.any_alive()) return {};
  if (stacks_ && stacks_->over()) return finish_hang(workers);
  if (now() < next_check_) return {};
  next_check_ = now() + kPeriod;
  ranks_.resize(std::size_t(workers.end() - workers.begin()));
  bool moved = false;
  std::uint64_t steps = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Worker& worker = workers.begin()[std::ptrdiff_t(i)];
    const std::uint64_t mark = ranks_[i].seen.progress.progress_mark;
    observe(worker, ranks_[i]);
    moved |= ranks_[i].seen.progress.progress_mark != mark;
    steps = std::max(steps, ranks_[i].seen.progress.steps);
  }
  if (moved) {
    limit_.learn(now() - last_moved_, steps);
    last_moved_ = now();
    if (warned_ && !hangs_) say_("the ranks make progress again");
    warned_ = false;
  }
  check_memory();
  check_for_stragglers();
  if (!moved && !stacks_ && !hangs_) check_for_hang(workers);
  return {};
}

void Monitor::observe(Worker& worker, WatchedRank& watched) {
  watched.seen.rank = worker.rank();
  watched.seen.alive = worker.alive();
  if (!worker.alive()) return;
  const trace::RankProgress before = std::move(watched.seen.progress);
  watched.seen.progress = worker.progress().read_brief();
  const trace::RankProgress& progress = watched.seen.progress;
  if (progress.progress_mark != before.progress_mark) watched.moved = now();
  watched.steps_a_second = smoothed_rate(watched.steps_a_second, before, progress);
  const bool was_suspended = watched.seen.suspended;
  watched.process = process_info(worker.pid());
  watched.seen.suspended = is_suspended(worker.pid());
  if (watched.seen.suspended == was_suspended) return;
  if (hangs_ || worker.end().stopped) return;  // the agent's own debugger or SIGCONT may have caused it
  say_(rank_and_pid(worker) + (was_suspended
                                   ? " continues"
                                   : " is stopped (SIGSTOP or a debugger): the others will wait for it; kill -CONT " +
                                         std::to_string(worker.pid()) + " continues it"));
}

void Monitor::check_memory() {
  const CgroupMemory memory = cgroup_memory();
  if (!failed_) memory_used_ = memory.used;  // the memory of dead ranks is free again
  if (memory.kills <= kills_) return;
  kills_ = memory.kills;
  say_("the kernel's out-of-memory killer struck in the cgroup of this job" +
       (memory.limit ? " (its limit is " + bytes_text(memory.limit) + ")" : ""));
}

void Monitor::check_for_stragglers() {
  std::vector<RankSeen> ranks = seen();
  for (RankSeen& rank : ranks) rank.processor = processor_seconds(rank.progress.pid);
  const bool standing = now() - last_moved_ > kPeriod * Stragglers::kChecks / 2;
  if (const auto straggler = stragglers_.check(ranks, standing)) say_(straggler_text(*straggler));
}

std::vector<RankSeen> Monitor::seen() const {
  std::vector<RankSeen> seen;
  for (const WatchedRank& watched : ranks_)
    if (watched.seen.alive && watched.seen.progress.pid != 0) seen.push_back(watched.seen);
  return seen;
}

void Monitor::check_for_hang(Workers& workers) {
  const Duration still = now() - last_moved_;
  const auto limit = limit_.limit(), warning = limit_.warning();
  const std::vector<RankSeen> ranks = seen();
  if (ranks.empty() || !limit) return;
  const auto sentence = [&](const HangCause& cause) {
    return nobody_ + " has made progress for " + seconds_text(to_seconds(still)) + ": " + cause.text;
  };
  if (warning && still >= *warning && !warned_) {
    warned_ = true;
    say_(sentence(explain_hang(ranks, options_.describe)) + "; after " + seconds_text(to_seconds(*limit)) + " (" +
         limit_.text() + ") the job ends");
  }
  if (still < *limit) return;
  hangs_ = true;
  hung_for_ = still;
  freeze(workers);
  say_(sentence(explain_hang(frozen_, options_.describe)) + "; collecting the stacks of all ranks");
  std::vector<Stacks::Target> targets;
  for (Worker& worker : workers)
    if (worker.alive()) targets.push_back({worker.rank(), worker.pid(), worker.progress()});
  stacks_ = std::make_unique<Stacks>(std::move(targets), kStacksLimit);
}

Hang Monitor::finish_hang(Workers& workers) {
  const std::unique_ptr<Stacks> stacks = std::move(stacks_);
  const auto deadline = Deadline::after(kNamesLimit);
  Status written = trace::make_flight_folder(folder_);
  for (Worker& worker : workers) {
    const int rank = worker.rank();
    short_stacks_[rank] = stacks->short_stack(rank, deadline);
    const std::string text = stacks->text_of(rank, short_stacks_[rank]);
    if (written.ok()) written = write_new_file(folder_ + "/stacks-rank" + std::to_string(rank) + ".txt", text);
  }
  say_(written.ok() ? "the stacks of all ranks are in " + folder_ + "/stacks-rank*.txt"
                    : "could not write the stacks of the ranks: " + to_string(written.error()));
  const HangCause cause = explain_hang(frozen_, options_.describe);
  Hang hang{.text = nobody_ + " has made progress for " + seconds_text(to_seconds(hung_for_)) + " (" + limit_.text() +
                    "): " + cause.text,
            .blamed = !cause.blamed.empty()};
  hang.rank = hang.blamed ? cause.blamed.front() : frozen_.empty() ? -1 : frozen_.front().rank;
  for (const RankSeen& rank : frozen_)
    if (rank.rank == hang.rank) hang.step = rank.progress.step;
  return hang;
}

std::vector<RankStatus> Monitor::status(Workers& workers) const {
  std::vector<RankStatus> ranks;
  std::size_t index = 0;
  for (Worker& worker : workers) {
    const WatchedRank watched = index < ranks_.size() ? ranks_[index] : WatchedRank{};
    ++index;
    const trace::RankProgress progress = worker.progress().read_brief();
    RankStatus rank{.rank = worker.rank(), .pid = worker.pid()};
    rank.state = !worker.alive()              ? worker.end().exit.ok() ? "ended" : "failed"
                 : is_suspended(worker.pid()) ? "stopped"
                                              : "runs";
    rank.step = progress.step;
    rank.steps_a_second = worker.alive() ? watched.steps_a_second : -1;
    rank.waits = worker.alive() ? stragglers_.waits(worker.rank()) : -1;
    rank.doing = state_text(progress, options_.describe);
    rank.alarm = progress.alarm;
    if (progress.joined) rank.seconds = seconds_in_state(progress);
    if (progress.pid != 0 && watched.moved != Clock::time_point{})
      rank.since_progress =
          progress.progress_mark == watched.seen.progress.progress_mark ? seconds_since(watched.moved) : 0;
    if (worker.alive()) rank.resident = watched.process.resident;
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

void Monitor::freeze(Workers& workers) {
  failed_ = true;
  if (!frozen_.empty()) return;
  for (Worker& worker : workers) {
    RankSeen seen{.rank = worker.rank(), .progress = worker.progress().read(), .alive = worker.alive()};
    if (seen.progress.pid == 0) continue;
    seen.suspended = seen.alive && is_suspended(worker.pid());
    frozen_.push_back(std::move(seen));
  }
}

Worker* Monitor::dying(Workers& workers, const Worker& worker) const {
  for (Worker& other : workers)
    if (&other != &worker && other.alive() && other.progress().read().crash.number != 0) return &other;
  return nullptr;
}

std::string Monitor::memory_text(const WorkerEnd& culprit, bool out_of_memory) const {
  if (!out_of_memory && culprit.exit.signal != SIGKILL && culprit.exit.signal != SIGBUS) return {};
  std::vector<std::string> parts;
  for (const WatchedRank& rank : ranks_) {
    if (rank.seen.rank != culprit.rank || rank.process.resident == 0) continue;
    parts.push_back("it had " + bytes_text(rank.process.resident) + " at the last check, at most " +
                    bytes_text(std::max(rank.process.most_resident, culprit.most_resident)));
  }
  if (parts.empty() && culprit.most_resident > 0)
    parts.push_back("it had " + bytes_text(culprit.most_resident) + " at most");
  const CgroupMemory memory = cgroup_memory();
  if (memory.limit) {
    parts.push_back("the cgroup's limit is " + bytes_text(memory.limit) + ", of which " + bytes_text(memory_used_) +
                    " were used before its end" +
                    (memory.most_used ? ", at most " + bytes_text(memory.most_used) : ""));
  }
  if (out_of_memory) parts.push_back("the out-of-memory killer struck while the job ran");
  return join(parts, "; ");
}

void Monitor::complete(Failure& failure, Workers& workers) const {
  const auto seen_as = [&](const trace::RankProgress& progress) {
    return LastActivity{
        .step = progress.step, .doing = activity_text(progress, options_.describe), .alarm = progress.alarm};
  };
  for (const RankSeen& rank : frozen_)
    if (rank.rank != failure.culprit.rank) failure.others[rank.rank] = seen_as(rank.progress);
  for (Worker& worker : workers) {
    if (worker.rank() != failure.culprit.rank) {
      if (worker.end().exit.ok()) continue;
      const trace::RankProgress last = worker.progress().read_brief();
      LastActivity& seen = failure.others[worker.rank()];
      seen.message = message_of(worker);
      seen.for_others = last.echoes || (last.lost >= 0 && last.lost != worker.rank());
      continue;
    }
    // A dead rank is described by its last page; one that hangs, as it was found.
    trace::RankProgress last = worker.progress().read();
    if (!worker.alive()) {  // for that long it was in its last call, or in none
      const auto end = worker.started().time_since_epoch() + std::chrono::duration<double>(worker.end().seconds);
      last.read_at = std::min(last.read_at, std::chrono::duration_cast<std::chrono::nanoseconds>(end).count());
    }
    for (const RankSeen& rank : frozen_)
      if (hangs_ && rank.rank == worker.rank()) last = rank.progress;
    failure.seen = seen_as(last);
    failure.message = message_of(worker);
    if (last.crash.number != 0) failure.backtrace = backtrace_lines(last.crash, Deadline::after(kNamesLimit));
  }
  failure.memory = memory_text(failure.culprit, failure.out_of_memory);
  if (!hangs_) return;
  for (const auto& [rank, stack] : short_stacks_) {
    std::vector<std::string>& into = rank == failure.culprit.rank ? failure.backtrace : failure.others[rank].stack;
    into.assign(stack.begin(), stack.begin() + std::ptrdiff_t(std::min(stack.size(), kShortStack)));
  }
}

}  // namespace tutti::launch
