// The root cause. A rank that dies takes others with it: they lose a peer, end their group, and so are a lost peer in
// turn for the next. Every rank shall print the first of these errors, whatever it saw itself. Two rules ensure that:
//   report before you stop: the first error of a group is in the store before any other rank can notice that this rank
//   has given up;
//   whoever saw the cause is heard first: a rank that lost a peer checks whether the peer has reported an error, and
//   gives the launcher, which reaps the process, a moment to say how it ended, before it reports its own error.
#include "tutti/comm/group/process.h"

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

constexpr const char* kErrorKey = "error";
constexpr const char* kFaultKey = "fault";
constexpr Duration kLauncherPatience = std::chrono::seconds(1);  // for the launcher to say how a rank ended
constexpr Duration kEchoPatience = std::chrono::seconds(8);      // for another rank, which may wait for the launcher

// The line after the sentence of a group's first error: "1,3;2" if the ranks 1 and 3 are late, and rank 2 is lost.
std::string ranks_line(const Error& error) {
  if (error.ranks.empty() && error.lost.empty()) return {};
  std::string line = "\n";
  for (const auto* ranks : {&error.ranks, &error.lost}) {
    if (ranks == &error.lost) line += ';';
    for (std::size_t i = 0; i < ranks->size(); ++i) line += (i == 0 ? "" : ",") + std::to_string((*ranks)[i]);
  }
  return line;
}

std::vector<int> read_ranks(const std::string& list) {
  std::vector<int> ranks;
  for (const std::string& word : split(list, ','))
    if (const auto rank = parse_int(word)) ranks.push_back(int(*rank));
  return ranks;
}

// The sentence of a group's first error. The lost ranks of the line after it are added to those of this error, and the
// late ones become those of an error that has no ranks itself.
std::string take_ranks(std::string report, Error& error) {
  const auto end = report.rfind('\n');
  if (end == std::string::npos || report.find_first_not_of("0123456789,;", end + 1) != std::string::npos) return report;
  const std::vector<std::string> lists = split(report.substr(end + 1), ';');
  if (lists.size() != 2) return report;
  if (error.ranks.empty() && error.lost.empty()) error.ranks = read_ranks(lists[0]);
  for (const int rank : read_ranks(lists[1]))
    if (std::find(error.lost.begin(), error.lost.end(), rank) == error.lost.end()) error.lost.push_back(rank);
  report.resize(end);
  return report;
}

}  // namespace

Process::~Process() {
  leave(false);
  // Its thread uses the members below, and until it has ended also this pointer.
  if (progress_thread) progress_thread->stop();
  progress_thread.reset();
}

void Process::remove_member(bool unwinding) {
  if (members_.fetch_sub(1) == 1) leave(unwinding);
}

// The goodbye comes first: a rank that waits for this one must not wait for its farewell as well.
void Process::leave(bool unwinding) {
  if (left_.exchange(true)) return;
  if (host) host->goodbye(unwinding);
  if (farewell) farewell();
}

void Process::add_root_cause(Error& error, std::uint64_t group, Evidence evidence) {
  const std::string sentence = to_string(error);
  if (!store) {
    error.cause = fault();
    return;
  }
  const std::string group_key = std::string(kErrorKey) + "/" + std::to_string(group);
  Status reached;  // whether the store could be reached
  const auto await = [&](Store& from, const std::string& key, Duration patience) -> std::optional<std::string> {
    auto value = from.get(key, Deadline::after(patience));
    if (!value.ok() && value.error().code != Code::kTimeout) reached = value.status();
    return value.ok() ? std::optional(*value) : std::nullopt;
  };
  const auto look = [&](const std::string& key) -> std::optional<std::string> {
    const auto exists = store->check({key});
    if (!exists.ok()) reached = exists.status();
    return exists.ok() && *exists ? await(*store, key, kLauncherPatience) : std::nullopt;
  };
  std::optional<std::string> cause;
  if (evidence == Evidence::kEcho && !has_fault()) {
    cause = look(group_key);
    if (!cause) {
      // By a handle of its own: the rank that is waited for may itself wait for this rank's report, in another group,
      // and calls of one handle are made one after another.
      const auto own = store->clone(Deadline::after(kLauncherPatience));
      cause = await(own.ok() ? **own : *store, group_key, kEchoPatience);
    }
  }
  if (cause) cause = take_ranks(*std::move(cause), error);
  if (!cause && evidence != Evidence::kCause) cause = look(kErrorKey);
  if (!cause && has_fault()) cause = fault();
  if (!cause && evidence == Evidence::kLoss && launcher) cause = await(*launcher, kFaultKey, kLauncherPatience);
  if (reached.ok()) {
    const auto first = store->compare_set(group_key, std::nullopt, cause.value_or(sentence) + ranks_line(error));
    if (!first.ok())
      reached = first.status();
    else if (first->value)
      cause = take_ranks(*first->value, error);
    if (reached.ok()) (void)store->compare_set(kErrorKey, std::nullopt, cause.value_or(sentence));
  }
  if (!cause && !reached.ok() && reached.error().code == Code::kPeerLost && !launcher && evidence != Evidence::kCause)
    cause = "rank 0, which served the job's store, has exited";
  error.cause = cause && *cause != sentence ? *cause : std::string();
}

void Process::lost(int global_rank) {
  if (page) page->set_lost(global_rank);
  MutexLock lock(fault_mutex_);
  if (std::find(lost_.begin(), lost_.end(), global_rank) == lost_.end()) lost_.push_back(global_rank);
}

void Process::leave_for(int lost_rank) {
  if (store && !serves_store) (void)store->set(goodbye_key(lost_rank), "");
}

std::vector<int> Process::lost_ranks() const {
  MutexLock lock(fault_mutex_);
  return lost_;
}

void Process::fault_arrived(const std::string& text) {
  {
    MutexLock lock(fault_mutex_);
    if (!fault_.empty()) return;
    fault_ = text;
  }
  has_fault_.store(true, std::memory_order_release);
  if (progress_thread) progress_thread->notify();
  write_flight(trace::FlightRecorder::Why::kFailure,
               text);  // this rank may be in no call, and learn of it nowhere else
}

void Process::write_flight(trace::FlightRecorder::Why why, const std::string& reason) {
  if (!flight) return;
  const auto path = flight->write(why, reason);
  if (!path.ok()) {
    log::warn(to_string(path.error()));
  } else if (!launcher || why == trace::FlightRecorder::Why::kAsked) {  // tutti run says it once for all ranks
    log::info("the flight record of this rank is " + *path + "; to compare all ranks: tutti flight " +
              flight->options().folder);
  }
}

std::string Process::fault() const {
  MutexLock lock(fault_mutex_);
  return fault_;
}

}  // namespace tutti::comm
