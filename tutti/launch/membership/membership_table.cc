// Three states. *MembershipTable*: nodes come, until a round is complete or `join` has passed. *Running*: a roster
// stands; nodes that come now are newcomers (there is room: the round will end for them) or spares (there is none).
// *Over*: whoever comes is sent home.
//
// What is told of a node may be late. A node that comes although it takes part has left its round by itself (it was cut
// off, or its round has ended and the news has not come through here yet): so the round ends. A node that asks for a
// number that another one has may be its successor, started before anybody missed the first: it waits until the first
// is heard again, at most as long as missing it can take, and is a mistake only then.
#include "tutti/launch/membership/membership_table.h"

#include <algorithm>
#include <utility>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr auto kMissedBy = std::chrono::seconds(1);  // beyond `lost_after`, until a death has been noticed
constexpr std::size_t kMostNamed = 8;
constexpr const char* kOwnNumber = "every node needs its own --node-rank, from 0 up";

std::string nodes_text(std::size_t count) { return std::to_string(count) + (count == 1 ? " node" : " nodes"); }
double seconds_between(MembershipTable::Time begin, MembershipTable::Time end) { return to_seconds(end - begin); }

}  // namespace

MembershipTable::MembershipTable(Limits limits, std::string self, Time now)
    : limits_(limits), self_(std::move(self)), began_(now) {}

void MembershipTable::resume(Participants last, bool ended, Time now) {
  roster_ = std::move(last);
  members_.clear();
  for (std::size_t node = 0; node < roster_.nodes.size(); ++node)
    members_[roster_.nodes[node].id] = Member{.node = int(node)};
  running_ = !ended;
  began_ = now;
}

void MembershipTable::say(std::string text) {
  steps_.push_back({.kind = MembershipStep::Kind::kSay, .text = std::move(text)});
}

void MembershipTable::remember(Fault fault) { roster_.past.push_back(std::move(fault)); }

std::vector<MembershipStep> MembershipTable::take() { return std::exchange(steps_, {}); }

void MembershipTable::come(JoinRequest comer, Time now) {
  if (over_) {
    refuse(comer, {.code = Code::kAborted, .detail = "the job has ended"}, now);
    return;
  }
  if (running_) {
    const auto member = members_.find(comer.id);
    if (member != members_.end()) {
      // Said twice, because it did not know of its seat yet; or else it has news that we do not, or was cut off.
      if (comer.visit <= roster_.nodes[std::size_t(member->second.node)].visit) return;
      const std::string who = words(comer, member->second.node);
      add(std::move(comer), now);
      end_running(who + " has left the round", now);
      return check(now);
    }
  }
  if (spoiled_ && roster_.round < 0) {
    steps_.push_back({.kind = MembershipStep::Kind::kRefuse, .who = {std::move(comer)}, .error = *spoiled_});
    return;
  }
  if (contradicts(comer)) return;
  if (!holder_of(comer).empty()) {
    const auto known =
        std::find_if(twins_.begin(), twins_.end(), [&](const auto& t) { return t.first.id == comer.id; });
    if (known == twins_.end()) {
      twins_.emplace_back(std::move(comer), now);
    } else {
      known->first = std::move(comer);
    }
    return;
  }
  const bool newcomer = running_ && !here_.contains(comer.id);
  const std::string who = words(comer);
  add(std::move(comer), now);
  if (newcomer) {
    const std::size_t free = std::size_t(limits_.max) - std::min<std::size_t>(roster_.nodes.size(), limits_.max);
    if (here_.size() > free) {
      say(who + " has come and waits as a spare: " + nodes_text(roster_.nodes.size()) + " take part, --nnodes allows " +
          std::to_string(limits_.max));
    } else if (!grow_) {
      grow_ = now + limits_.last_call;
      say(who + " has come: a new round begins with it in " + seconds_text(to_seconds(limits_.last_call)));
    }
  }
  check(now);
}

void MembershipTable::add(JoinRequest comer, Time now) {
  if (limits_.numbered) numbers_[comer.wanted] = comer.id;
  if (here_.empty() && !running_ && roster_.round < 0) began_ = now;
  const std::string id = comer.id;
  const auto at = here_.find(id);
  if (at != here_.end()) {
    if (comer.visit >= at->second.comer.visit) at->second.comer = std::move(comer);
    return;
  }
  here_.emplace(id, Here{.comer = std::move(comer), .order = arrivals_++, .since = now});
  if (!running_ && !last_call_ && int(here_.size()) >= limits_.min) call_last(now);
}

// Those who are there when the time to join is over are enough, so waiting longer for more is no reason to fail.
void MembershipTable::call_last(Time now) { last_call_ = std::min(now + limits_.last_call, began_ + limits_.join); }

// Whether its release, its --nnodes or its number cannot be true of the same job.
bool MembershipTable::contradicts(const JoinRequest& comer) {
  std::string detail, hint;
  const auto nnodes = [](int min, int max) {
    return std::to_string(min) + (min == max ? "" : ":" + std::to_string(max));
  };
  if (comer.note.release != TUTTI_VERSION) {
    const std::string& release = comer.note.release;
    detail = words_with_pid(comer) + " runs " + (release.empty() ? "an older tutti" : "tutti " + release) +
             ", but where the nodes meet it is tutti " TUTTI_VERSION;
    hint = "install the same release on all nodes";
  } else if (comer.min != limits_.min || comer.max != limits_.max) {
    detail = words_with_pid(comer) + " counts " + nnodes(comer.min, comer.max) +
             " nodes (--nnodes), but where the nodes meet " + nnodes(limits_.min, limits_.max) + " are expected";
    hint = "give all nodes the same --nnodes";
  } else if (limits_.numbered && (comer.wanted < 0 || comer.wanted >= limits_.max)) {
    detail = words_with_pid(comer) + " is not one of " + nodes_text(std::size_t(limits_.max));
    hint = kOwnNumber;
  } else {
    return false;
  }
  refuse(comer, {.code = Code::kMismatch, .detail = std::move(detail), .hint = std::move(hint)}, {});
  return true;
}

// Before the first round a node that cannot take part keeps the others waiting for what will never come: all are told.
void MembershipTable::refuse(const JoinRequest& comer, Error error, Time) {
  steps_.push_back({.kind = MembershipStep::Kind::kRefuse, .who = {comer}, .error = error});
  if (error.code != Code::kMismatch) return;
  error.detail = words_with_pid(comer) + " was turned away: " + error.detail;
  if (roster_.round >= 0) return say(error.detail);
  spoiled_ = error;
  refuse_all(std::move(error));
}

void MembershipTable::refuse_all(Error error) {
  MembershipStep step{.kind = MembershipStep::Kind::kRefuse, .error = std::move(error)};
  for (auto& [id, here] : here_) step.who.push_back(std::move(here.comer));
  for (auto& [twin, since] : twins_) step.who.push_back(std::move(twin));
  here_.clear();
  numbers_.clear();
  twins_.clear();
  last_call_.reset();
  if (!step.who.empty()) steps_.push_back(std::move(step));
}

// Who has the number that it asks for: it waits too, or takes part. Empty: nobody.
std::string MembershipTable::holder_of(const JoinRequest& comer) const {
  if (!limits_.numbered) return {};
  if (const auto at = numbers_.find(comer.wanted); at != numbers_.end() && at->second != comer.id) return at->second;
  if (!running_) return {};
  for (const JoinRequest& member : roster_.nodes)
    if (member.wanted == comer.wanted && member.id != comer.id && !members_.at(member.id).gone) return member.id;
  return {};
}

const JoinRequest* MembershipTable::comer_of(const std::string& id) const {
  if (const auto at = here_.find(id); at != here_.end()) return &at->second.comer;
  const auto member = members_.find(id);
  return member == members_.end() ? nullptr : &roster_.nodes[std::size_t(member->second.node)];
}

void MembershipTable::refuse_twin(const JoinRequest& twin, const std::string& holder, Time now) {
  const JoinRequest* const first = comer_of(holder);
  refuse(twin,
         {.code = Code::kMismatch,
          .detail = (first ? words_with_pid(*first) : "node " + std::to_string(twin.wanted)) + " takes part already",
          .hint = kOwnNumber},
         now);
}

std::vector<std::string> MembershipTable::doubted() const {
  std::vector<std::string> ids;
  for (const auto& [twin, since] : twins_)
    if (std::string holder = holder_of(twin); !holder.empty()) ids.push_back(std::move(holder));
  return ids;
}

void MembershipTable::is_alive(const std::string& id, Time when, Time now) {
  std::vector<JoinRequest> mistaken;
  std::erase_if(twins_, [&](const auto& twin) {
    const bool mistake = twin.second < when && holder_of(twin.first) == id;
    if (mistake) mistaken.push_back(twin.first);
    return mistake;
  });
  for (const JoinRequest& twin : mistaken) refuse_twin(twin, id, now);
}

void MembershipTable::lose(const std::string& id, const std::string& how, bool certain, Time now) {
  if (const auto at = here_.find(id); at != here_.end()) {
    say(words(at->second.comer) + " " + how + ", while it waited");
    if (limits_.numbered) numbers_.erase(at->second.comer.wanted);
    here_.erase(at);
    if (int(here_.size()) < limits_.min) last_call_.reset();
  }
  const auto member = members_.find(id);
  if (member != members_.end()) {
    const bool missed_before = std::exchange(member->second.gone, true);
    member->second.certain = member->second.certain || certain;
    if (running_ && !missed_before) {
      const JoinRequest& comer = roster_.nodes[std::size_t(member->second.node)];
      end_running("node " + std::to_string(member->second.node) + " (" + comer.note.host + ") " + how, now);
    }
  }
  check(now);
}

void MembershipTable::leave(const std::string& id, Time now) { lose(id, "has left", true, now); }

// The round that runs ends by our decision. Of a job of fixed size it ends by a fault, whose judge is not here.
void MembershipTable::end_running(std::string text, Time now, bool gentle) {
  const auto kind = limits_.fixed() ? MembershipStep::Kind::kFail : MembershipStep::Kind::kEndRound;
  steps_.push_back({.kind = kind, .round = roster_.round, .text = std::move(text), .gentle = gentle});
  if (kind == MembershipStep::Kind::kEndRound) end(roster_.round, {}, true, now);
}

void MembershipTable::end(int round, const std::optional<Fault>& fault, bool goes_on, Time now) {
  if (over_) return;
  if (!running_ || round != roster_.round) {
    if (!goes_on) over_ = round >= roster_.round;  // what was decided elsewhere is stronger than what we had in mind
    if (over_) refuse_all({.code = Code::kAborted, .detail = "the job has ended"});
    return;
  }
  // A twin of one who took part to the end was a mistake, whatever became of the job.
  if (!goes_on)
    for (const std::string& holder : doubted()) is_alive(holder, Time::max(), now);
  running_ = false;
  grow_.reset();
  if (fault && goes_on) roster_.past.push_back(*fault);
  if (!goes_on) {
    over_ = true;
    return refuse_all({.code = Code::kAborted, .detail = "the job has ended"});
  }
  began_ = now;
  last_call_.reset();
  if (int(here_.size()) >= limits_.min) call_last(now);
  check(now);
}

void MembershipTable::tick(Time now) {
  // Whoever still holds the number by now is alive.
  std::vector<std::pair<JoinRequest, Time>> twins = std::exchange(twins_, {});
  for (auto& [twin, since] : twins) {
    const bool patient = now - since < limits_.lost_after + kMissedBy;
    const std::string holder = holder_of(twin);
    if (holder.empty()) {
      come(std::move(twin), now);
    } else if (patient) {
      twins_.emplace_back(std::move(twin), since);
    } else {
      refuse_twin(twin, holder, now);
    }
  }
  if (running_ && grow_ && now >= *grow_) {
    std::vector<std::string> names;
    for (const Here* here : in_order()) names.push_back(words(here->comer));
    if (names.empty()) {  // gone again
      grow_.reset();
    } else {
      end_running(join(names, ", ") + (names.size() == 1 ? " has come" : " have come"), now, /*gentle=*/true);
    }
  }
  check(now);
}

bool MembershipTable::all_expected() const {
  return roster_.round >= 0 && std::all_of(members_.begin(), members_.end(), [&](const auto& member) {
           return member.second.gone || here_.contains(member.first);
         });
}

// Half of those who may still live, and the coordinator, are enough: the other half has no coordinator.
bool MembershipTable::minority() const {
  std::size_t could = 0, are = 0;
  for (const auto& [id, member] : members_) {
    could += !member.certain;
    are += here_.contains(id);
  }
  return 2 * are < could;
}

bool MembershipTable::enough(Time now) const {
  const int count = int(here_.size());
  if (count < limits_.min) return false;
  const bool last_call_is_over = last_call_ && now >= *last_call_;
  // A spare does not step in for who is on the way.
  if (!last_call_is_over && !(roster_.round < 0 ? count >= limits_.max : all_expected())) return false;
  return !minority();  // last: it looks at every node, and each that comes asks
}

void MembershipTable::check(Time now) {
  if (running_ || over_) return;
  if (enough(now)) return complete(now);
  if (now - began_ < limits_.join || (here_.empty() && roster_.round < 0)) return;
  Error error = too_late(now);
  if (roster_.round >= 0) {
    over_ = true;
    say(error.detail);
  }
  refuse_all(std::move(error));
  began_ = now;
}

std::vector<const MembershipTable::Here*> MembershipTable::in_order() const {
  std::vector<std::pair<std::tuple<int, int, std::size_t>, const Here*>> keyed;
  keyed.reserve(here_.size());
  for (const auto& [id, here] : here_) {
    const auto member = members_.find(id);
    const int before = member == members_.end() || limits_.numbered ? INT32_MAX : member->second.node;
    const int wanted = here.comer.wanted < 0 ? INT32_MAX : here.comer.wanted;
    keyed.push_back({{before, wanted, here.order}, &here});
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<const Here*> order;
  order.reserve(keyed.size());
  for (const auto& [key, here] : keyed) order.push_back(here);
  return order;
}

void MembershipTable::complete(Time now) {
  auto order = in_order();
  Participants next{.round = roster_.round + 1, .nodes = {}, .past = std::move(roster_.past), .successor = {}};
  for (const Here* here : order) next.round = std::max(next.round, here->comer.last_round + 1);
  const std::size_t count = std::min(order.size(), std::size_t(limits_.max));
  std::vector<RollNote> notes;
  for (std::size_t i = 0; i < count; ++i) notes.push_back(order[i]->comer.note);
  if (const Status agreed = check_roll(notes); !agreed) {
    roster_.past = std::move(next.past);
    return refuse_all(agreed.error());
  }
  next.nodes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) next.nodes.push_back(order[i]->comer);
  next.successor = successor_among(next.nodes);
  members_.clear();
  for (std::size_t node = 0; node < count; ++node) {
    const JoinRequest& comer = next.nodes[node];
    members_[comer.id] = Member{.node = int(node)};
    if (limits_.numbered) numbers_.erase(comer.wanted);
    here_.erase(comer.id);
  }
  roster_ = std::move(next);
  running_ = true;
  last_call_.reset();
  grow_.reset();
  began_ = now;
  for (const auto& [id, here] : here_) say(words(here.comer) + " waits as a spare");
  steps_.push_back({.kind = MembershipStep::Kind::kComplete, .roster = roster_});
}

// Where too few would be left the lost node has to come back anyway, to the address that it knows.
std::string MembershipTable::successor_among(const std::vector<JoinRequest>& nodes) const {
  if (!limits_.succession) return {};
  std::string first;
  int others = 0;
  for (const JoinRequest& comer : nodes) {
    if (comer.id == self_) continue;
    ++others;
    if (first.empty() || comer.id == roster_.successor) first = comer.id;
  }
  return others >= limits_.min ? first : std::string();
}

std::string MembershipTable::waiting_words(Time now) const {
  if (running_ || over_) return {};
  const auto order = in_order();
  std::vector<std::string> came;
  for (const Here* here : order) {
    if (came.size() == kMostNamed) {
      came.push_back("and " + std::to_string(order.size() - kMostNamed) + " more");
      break;
    }
    came.push_back(words(here->comer));
  }
  const std::size_t wanted = std::size_t(limits_.min);
  std::string text = std::to_string(order.size()) + " of " + (limits_.min == limits_.max ? "" : "at least ") +
                     nodes_text(wanted) + (wanted == 1 ? " has" : " have") + " come after " +
                     seconds_text(seconds_between(began_, now)) + " of " + seconds_text(to_seconds(limits_.join));
  if (!came.empty()) text += ": " + join(came, ", ");
  std::vector<std::string> missing;
  if (roster_.round >= 0) {
    for (const auto& [id, member] : members_) {
      if (here_.contains(id) || member.certain) continue;
      missing.push_back(words(roster_.nodes[std::size_t(member.node)], member.node) + (member.gone ? ", lost" : ""));
    }
    std::sort(missing.begin(), missing.end());
    if (missing.size() > kMostNamed) missing.resize(kMostNamed);
    if (minority()) text += "; fewer than half of the last round, and a minority never goes on";
  } else if (limits_.numbered) {
    std::vector<int> numbers;
    for (int number = 0; number < limits_.max; ++number)
      if (!numbers_.contains(number)) numbers.push_back(number);
    if (!numbers.empty()) missing.push_back((numbers.size() == 1 ? "node " : "nodes ") + ranks_text(numbers));
  }
  if (!missing.empty()) text += "; missing: " + join(missing, ", ");
  if (last_call_ && *last_call_ > now)
    text += "; the last call for more lasts " + seconds_text(seconds_between(now, *last_call_));
  return text;
}

Error MembershipTable::too_late(Time now) const {
  return Error{.code = Code::kTimeout,
               .detail = waiting_words(now),
               .hint = std::string("are the missing nodes started, with the same --nnodes and ") +
                       (limits_.numbered ? "--master-addr? Wait longer with --connect-timeout"
                                         : "--rdzv-endpoint? Wait longer with --rdzv-conf join_timeout=SECONDS")};
}

std::size_t MembershipTable::others() const {
  std::size_t count = here_.size() - here_.count(self_) + twins_.size();
  for (const auto& [id, member] : members_) count += !member.gone && id != self_ && !here_.contains(id);
  return count;
}

bool MembershipTable::knows(const std::string& id) const {
  const auto member = members_.find(id);
  return here_.contains(id) || (member != members_.end() && !member->second.gone);
}

}  // namespace tutti
