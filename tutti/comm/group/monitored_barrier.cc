// A barrier for finding out who does not come. It meets in the store, not in the group's own lines or links, so that
// one that fails leaves nothing half done there: the group is as good as before, for those who gave up and for those
// who come late, and the next call meets as if this one had not been.
//
// The keys of barrier K, below watched/GROUP/K/:
//   came      the ranks that have come, " 0 2": who gives up reads here who has not
//   arrivals  how many they are: the last one settles the barrier
//   verdict   "passed", or the ranks that were missing when the first limit ended, and a line with what that rank sees
//   of
//             them. Written once, by compare and set, so that all agree however close the race; who comes later finds
//             it and is told that it came too late
//   told      how many have read the verdict: the last one removes the keys
#include <algorithm>
#include <string>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/comm/group/group_state.h"

namespace tutti {
namespace {

constexpr const char* kPassed = "passed";
// A wait is cut into pieces, between which the rank looks whether the group or the job has ended meanwhile.
constexpr Duration kLook = std::chrono::milliseconds(250);

std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& word : split(text, ' '))
    if (const auto rank = parse_int(word)) ranks.push_back(int(*rank));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

Status GroupState::monitored_barrier(Duration limit) {
  if (is_ended()) return why_ended({});
  if (limit < Duration(0))
    return complete(invalid_argument("the limit of monitored_barrier is " + seconds_text(to_seconds(limit)),
                                     "give the seconds that the slowest rank may take"),
                    {}, sequence_.load());
  if (size() == 1) return {};
  MutexLock lock(watch_mutex_);
  const Deadline deadline = Deadline::after(limit.count() ? limit : limit_);
  // A connection of its own: whoever waits in the store keeps others of this rank from telling of an error there.
  if (!watch_) watch_ = TUTTI_TRY(process_->store->clone(deadline.at_most(std::chrono::seconds(30))));
  watch_->set_call_timeout(
      std::clamp<Duration>(deadline.remaining(), std::chrono::seconds(1), std::chrono::seconds(5)));
  const std::uint64_t number = ++watched_;
  const auto in_words = [&](Error error) {
    error.group = spec_.name;
    error.rank = rank();
    error.operation = "monitored_barrier #" + std::to_string(number);
    return Status(std::move(error));
  };
  const Result<std::string> verdict = meet_in_store(number, deadline);
  if (is_ended()) return why_ended({});
  if (!verdict.ok()) return in_words(verdict.error());
  if (*verdict == kPassed) return {};
  const std::size_t line = std::min(verdict->find('\n'), verdict->size());
  const std::vector<int> late = ranks_in(verdict->substr(0, line));

  if (std::find(late.begin(), late.end(), rank()) != late.end()) {
    Error error{.code = Code::kTimeout, .detail = "this rank came too late"};
    if (late.size() > 1) error.detail += ", as did " + ranks_words(others(late));
    error.detail += ": the ranks that were there have given up";
    error.hint = "give monitored_barrier a longer limit, or look at what this rank did before; the group goes on";
    return in_words(std::move(error));
  }
  Error error = deadline.error(ranks_words(late) + (late.size() == 1 ? " has" : " have") + " not come");
  const std::string seen = seen_of(late);
  error.detail += seen.empty() ? verdict->substr(std::min(line + 1, verdict->size())) : seen;
  error.hint = "look at what they do instead: the group goes on, and they get this error when they come";
  return in_words(std::move(error));
}

std::vector<int> GroupState::others(std::vector<int> ranks) const {
  std::erase(ranks, rank());
  return ranks;
}

// "; rank 3 (pid 12) has died ...", "; rank 4 (pid 13) is stopped ...": what this host knows of them.
std::string GroupState::seen_of(std::span<const int> late) const {
  std::string seen;
  for (const int r : late)
    if (const auto departure = departure_of(r)) seen += detail::words("; rank ", r, " ", departure->error.detail);
  return seen + stopped_ranks();
}

// The verdict.
Result<std::string> GroupState::meet_in_store(std::uint64_t number, Deadline deadline) {
  const std::string keys = detail::words("watched/", std::to_string(spec_.id), "/", std::to_string(number), "/");
  const std::string came = keys + "came", arrivals = keys + "arrivals", verdict = keys + "verdict",
                    told = keys + "told";
  TUTTI_TRY(watch_->append(came, " " + std::to_string(rank())));
  if (TUTTI_TRY(watch_->add(arrivals, 1)) == size()) TUTTI_TRY(watch_->compare_set(verdict, {}, kPassed));

  const auto timed_out = [](const Result<std::string>& r) { return !r.ok() && r.error().code == Code::kTimeout; };
  Result<std::string> known = watch_->get(verdict, deadline.at_most(kLook));
  while (timed_out(known) && !deadline.expired() && !is_ended()) known = watch_->get(verdict, deadline.at_most(kLook));
  if (timed_out(known) && !is_ended()) {
    const std::vector<int> here = ranks_in(TUTTI_TRY(watch_->get(came, Deadline::after(kLook))));
    std::vector<int> late;
    std::string missing;
    for (int r = 0; r < size(); ++r)
      if (!std::binary_search(here.begin(), here.end(), r)) {
        late.push_back(r);
        missing += " " + std::to_string(r);
      }
    known = *TUTTI_TRY(watch_->compare_set(verdict, {}, late.empty() ? kPassed : missing + "\n" + seen_of(late))).value;
  }
  if (!known.ok()) return known;
  if (TUTTI_TRY(watch_->add(told, 1)) == size())
    for (const std::string& key : {came, arrivals, verdict, told}) TUTTI_TRY(watch_->remove(key));
  return known;
}

}  // namespace tutti
