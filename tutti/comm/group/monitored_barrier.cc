// The keys of barrier K, below watched/GROUP/K/:
//   came      the ranks that have come, " 0 2": a rank that gives up reads here which have not
//   arrivals  how many have come: the last one settles the barrier
//   verdict   "passed", or the ranks that were missing when the first limit ended, and a line with what that rank knows
//             of them. Written once, by compare and set, so that all agree however close the race; a rank that comes
//             later finds it, and reports that it came too late
//   told      how many have read the verdict: the last one removes the keys
#include "tutti/comm/group/monitored_barrier.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

constexpr const char* kPassed = "passed";
// A wait is cut into pieces, between which the rank checks whether the group or the job has ended meanwhile.
constexpr Duration kBetweenChecks = std::chrono::milliseconds(250);
constexpr Duration kConnectPatience = std::chrono::seconds(30);

std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& word : split(text, ' '))
    if (const auto rank = parse_int(word)) ranks.push_back(int(*rank));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

Status MonitoredBarrier::run(Duration limit, const std::function<bool()>& is_ended) {
  MutexLock lock(mutex_);
  const Deadline deadline = Deadline::after(limit);
  if (!store_) store_ = TUTTI_TRY(process_.store->clone(deadline.at_most(kConnectPatience)));
  store_->set_call_timeout(
      std::clamp<Duration>(deadline.remaining(), std::chrono::seconds(1), std::chrono::seconds(5)));
  const std::uint64_t number = ++last_;
  const auto complete = [&](Error error) {
    error.group = spec_.name;
    error.rank = spec_.rank;
    error.operation = "monitored_barrier #" + std::to_string(number);
    return Status(std::move(error));
  };
  const Result<std::string> verdict = await_verdict(number, deadline, is_ended);
  if (!verdict.ok()) return complete(verdict.error());
  if (*verdict == kPassed) return {};
  const std::size_t line = std::min(verdict->find('\n'), verdict->size());
  std::vector<int> late = ranks_in(verdict->substr(0, line));

  if (const std::vector<int> all = late; std::erase(late, spec_.rank) > 0) {
    Error error{.code = Code::kTimeout, .detail = "this rank arrived too late", .ranks = all};
    if (!late.empty()) error.detail += ", as did " + ranks_words(late);
    error.detail += ": the ranks that waited have timed out";
    error.hint = "give monitored_barrier a longer limit, or check what this rank did before; the group stays usable";
    return complete(std::move(error));
  }
  Error error = deadline.error(ranks_words(late) + (late.size() == 1 ? " has" : " have") + " not arrived");
  error.ranks = late;
  const std::string known = known_of(late);
  error.detail += known.empty() ? verdict->substr(std::min(line + 1, verdict->size())) : known;
  error.hint = "check what they do instead: the group stays usable, and they get this error when they arrive";
  return complete(std::move(error));
}

// "; rank 3 (pid 12) has died ...", "; rank 4 (pid 13) is stopped ...": what this host knows of them.
std::string MonitoredBarrier::known_of(std::span<const int> late) const {
  std::string text;
  for (const int r : late)
    if (const auto departure = peers_.departure_of(r))
      text += detail::words("; rank ", r, " ", departure->error.detail);
  return text + peers_.stopped_text();
}

Result<std::string> MonitoredBarrier::await_verdict(std::uint64_t number, Deadline deadline,
                                                    const std::function<bool()>& is_ended) {
  const std::string keys = detail::words("watched/", std::to_string(spec_.id), "/", std::to_string(number), "/");
  const std::string came = keys + "came", arrivals = keys + "arrivals", verdict = keys + "verdict",
                    told = keys + "told";
  const int size = spec_.size();
  TUTTI_TRY(store_->append(came, " " + std::to_string(spec_.rank)));
  if (TUTTI_TRY(store_->add(arrivals, 1)) == size) TUTTI_TRY(store_->compare_set(verdict, {}, kPassed));

  const auto timed_out = [](const Result<std::string>& r) { return !r.ok() && r.error().code == Code::kTimeout; };
  Result<std::string> known = store_->get(verdict, deadline.at_most(kBetweenChecks));
  while (timed_out(known) && !deadline.expired() && !is_ended())
    known = store_->get(verdict, deadline.at_most(kBetweenChecks));
  if (timed_out(known) && !is_ended()) {
    const std::vector<int> here = ranks_in(TUTTI_TRY(store_->get(came, Deadline::after(kBetweenChecks))));
    std::vector<int> late;
    std::string missing;
    for (int r = 0; r < size; ++r)
      if (!std::binary_search(here.begin(), here.end(), r)) {
        late.push_back(r);
        missing += " " + std::to_string(r);
      }
    known =
        *TUTTI_TRY(store_->compare_set(verdict, {}, late.empty() ? kPassed : missing + "\n" + known_of(late))).value;
  }
  if (!known.ok()) return known;
  if (TUTTI_TRY(store_->add(told, 1)) == size)
    for (const std::string& key : {came, arrivals, verdict, told}) TUTTI_TRY(store_->remove(key));
  return known;
}

}  // namespace tutti::comm
