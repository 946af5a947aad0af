// Three states. *Waiting*: nodes come until a round is complete or `join` has passed. *Running*: a round has its
// participants; nodes that come now are newcomers (there is room: the round will end for them) or spares (there is
// none). *Over*: every node that comes is sent home.
//
// What is reported of a node may be late. A node that comes although it takes part has left its round by itself: it was
// cut off, or its round has ended and that has not been noticed here yet. So the round ends. A node that asks for a
// number that another node has may be its replacement, started before anybody missed the first. It waits until the
// first is heard again, at most as long as noticing the loss can take, and is a mistake only then.
#include "tutti/launch/membership/membership.h"

#include <algorithm>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::launch::membership {
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
  participants_ = std::move(last);
  members_.clear();
  for (std::size_t node = 0; node < participants_.nodes.size(); ++node)
    members_[participants_.nodes[node].id] = Member{.node = int(node)};
  running_ = !ended;
  began_ = now;
}

void MembershipTable::say(std::string text) {
  steps_.push_back({.kind = MembershipStep::Kind::kSay, .text = std::move(text)});
}

void MembershipTable::remember(Fault fault) { participants_.past.push_back(std::move(fault)); }

std::vector<MembershipStep> MembershipTable::take() { return std::exchange(steps_, {}); }

void MembershipTable::request_join(JoinRequest request, Time now) {
  if (over_) {
    refuse(request, {.code = Code::kAborted, .detail = "the job has ended"});
    return;
  }
  if (running_) {
    const auto member = members_.find(request.id);
    if (member != members_.end()) {
      // Said twice, because it did not have its assignment yet; or else it knows more than we do, or was cut off.
      if (request.visit <= participants_.nodes[std::size_t(member->second.node)].visit) return;
      const std::string who = describe(request, member->second.node);
      add(std::move(request), now);
      end_running(who + " has left the round", now);
      return check(now);
    }
  }
  if (spoiled_ && participants_.round < 0) {
    steps_.push_back({.kind = MembershipStep::Kind::kRefuse, .who = {std::move(request)}, .error = *spoiled_});
    return;
  }
  if (contradicts(request)) return;
  if (!holder_of(request).empty()) {
    const auto known =
        std::find_if(duplicates_.begin(), duplicates_.end(), [&](const auto& t) { return t.first.id == request.id; });
    if (known == duplicates_.end()) {
      duplicates_.emplace_back(std::move(request), now);
    } else {
      known->first = std::move(request);
    }
    return;
  }
  const bool newcomer = running_ && !waiting_.contains(request.id);
  const std::string who = describe(request);
  add(std::move(request), now);
  if (newcomer) {
    const std::size_t free = std::size_t(limits_.max) - std::min<std::size_t>(participants_.nodes.size(), limits_.max);
    if (waiting_.size() > free) {
      say(who + " joined and waits as a spare: " + nodes_text(participants_.nodes.size()) +
          (participants_.nodes.size() == 1 ? " takes" : " take") + " part, --nnodes allows " +
          std::to_string(limits_.max));
    } else if (!grow_) {
      grow_ = now + limits_.last_call;
      say(who + " joined: a new round begins with it in " + seconds_text(to_seconds(limits_.last_call)));
    }
  }
  check(now);
}

void MembershipTable::add(JoinRequest request, Time now) {
  if (limits_.numbered) numbers_[request.wanted] = request.id;
  if (waiting_.empty() && !running_ && participants_.round < 0) began_ = now;
  const std::string id = request.id;
  const auto at = waiting_.find(id);
  if (at != waiting_.end()) {
    if (request.visit >= at->second.request.visit) at->second.request = std::move(request);
    return;
  }
  waiting_.emplace(id, Waiting{.request = std::move(request), .order = arrivals_++});
  if (!running_ && !last_call_ && int(waiting_.size()) >= limits_.min) call_last(now);
}

// If MIN nodes are here when the time to join is over, they are enough: that more could come is no reason to fail.
void MembershipTable::call_last(Time now) { last_call_ = std::min(now + limits_.last_call, began_ + limits_.join); }

// Refuses a node whose release, --nnodes, failover or number cannot belong to the same job.
bool MembershipTable::contradicts(const JoinRequest& request) {
  std::string detail, hint;
  const auto nnodes = [](int min, int max) {
    return std::to_string(min) + (min == max ? "" : ":" + std::to_string(max));
  };
  if (request.note.release != TUTTI_VERSION) {
    const std::string& release = request.note.release;
    detail = describe_with_pid(request) + " runs " + (release.empty() ? "an older tutti" : "tutti " + release) +
             ", but the coordinator runs tutti " TUTTI_VERSION;
    hint = "install the same release on all nodes";
  } else if (request.min != limits_.min || request.max != limits_.max) {
    detail = describe_with_pid(request) + " counts " + nnodes(request.min, request.max) +
             " nodes (--nnodes), but the coordinator expects " + nnodes(limits_.min, limits_.max);
    hint = "give all nodes the same --nnodes";
  } else if (request.failover != limits_.failover) {
    const auto on = [](bool failover) { return failover ? "on" : "off"; };
    detail = describe_with_pid(request) + " has the failover of the store " + on(request.failover) +
             ", but on the coordinator it is " + on(limits_.failover);
    hint = "give all nodes the same failover= in --rdzv-conf";
  } else if (limits_.numbered && (request.wanted < 0 || request.wanted >= limits_.max)) {
    detail = describe_with_pid(request) + " is not one of " + nodes_text(std::size_t(limits_.max));
    hint = kOwnNumber;
  } else {
    return false;
  }
  refuse(request, {.code = Code::kMismatch, .detail = std::move(detail), .hint = std::move(hint)});
  return true;
}

// Before the first round, the nodes would wait in vain for one that cannot take part: the error goes to all.
void MembershipTable::refuse(const JoinRequest& request, Error error) {
  steps_.push_back({.kind = MembershipStep::Kind::kRefuse, .who = {request}, .error = error});
  if (error.code != Code::kMismatch) return;
  error.detail = describe_with_pid(request) + " was rejected: " + error.detail;
  if (participants_.round >= 0) return say(error.detail);
  spoiled_ = error;
  refuse_all(std::move(error));
}

void MembershipTable::refuse_all(Error error) {
  MembershipStep step{.kind = MembershipStep::Kind::kRefuse, .error = std::move(error)};
  for (auto& [id, here] : waiting_) step.who.push_back(std::move(here.request));
  for (auto& [duplicate, since] : duplicates_) step.who.push_back(std::move(duplicate));
  waiting_.clear();
  numbers_.clear();
  duplicates_.clear();
  last_call_.reset();
  if (!step.who.empty()) steps_.push_back(std::move(step));
}

// The id of the node that has the number it asks for, waiting or taking part; empty: none has.
std::string MembershipTable::holder_of(const JoinRequest& request) const {
  if (!limits_.numbered) return {};
  if (const auto at = numbers_.find(request.wanted); at != numbers_.end() && at->second != request.id)
    return at->second;
  if (!running_) return {};
  for (const JoinRequest& member : participants_.nodes)
    if (member.wanted == request.wanted && member.id != request.id && !members_.at(member.id).gone) return member.id;
  return {};
}

const JoinRequest* MembershipTable::request_of(const std::string& id) const {
  if (const auto at = waiting_.find(id); at != waiting_.end()) return &at->second.request;
  const auto member = members_.find(id);
  return member == members_.end() ? nullptr : &participants_.nodes[std::size_t(member->second.node)];
}

void MembershipTable::refuse_duplicate(const JoinRequest& duplicate, const std::string& holder) {
  const JoinRequest* const first = request_of(holder);
  refuse(duplicate, {.code = Code::kMismatch,
                     .detail = (first ? describe_with_pid(*first) : "node " + std::to_string(duplicate.wanted)) +
                               " already takes part",
                     .hint = kOwnNumber});
}

std::vector<std::string> MembershipTable::suspected() const {
  std::vector<std::string> ids;
  for (const auto& [duplicate, since] : duplicates_)
    if (std::string holder = holder_of(duplicate); !holder.empty()) ids.push_back(std::move(holder));
  return ids;
}

void MembershipTable::is_alive(const std::string& id, Time when) {
  std::vector<JoinRequest> mistaken;
  std::erase_if(duplicates_, [&](const auto& duplicate) {
    const bool mistake = duplicate.second < when && holder_of(duplicate.first) == id;
    if (mistake) mistaken.push_back(duplicate.first);
    return mistake;
  });
  for (const JoinRequest& duplicate : mistaken) refuse_duplicate(duplicate, id);
}

void MembershipTable::lose(const std::string& id, const std::string& how, bool certain, Time now) {
  if (const auto at = waiting_.find(id); at != waiting_.end()) {
    say(describe(at->second.request) + " " + how + ", while it waited");
    if (limits_.numbered) numbers_.erase(at->second.request.wanted);
    waiting_.erase(at);
    if (int(waiting_.size()) < limits_.min) last_call_.reset();
  }
  const auto member = members_.find(id);
  if (member != members_.end()) {
    const bool missed_before = std::exchange(member->second.gone, true);
    member->second.certain = member->second.certain || certain;
    if (running_ && !missed_before) {
      const JoinRequest& request = participants_.nodes[std::size_t(member->second.node)];
      end_running("node " + std::to_string(member->second.node) + " (" + request.note.host + ") " + how, now);
    }
  }
  check(now);
}

void MembershipTable::leave(const std::string& id, Time now) { lose(id, "has left", true, now); }

// The running round ends by our decision. In a job of fixed size that is a fault; what follows is not decided here.
void MembershipTable::end_running(std::string text, Time now, bool gentle) {
  const auto kind = limits_.fixed() ? MembershipStep::Kind::kFail : MembershipStep::Kind::kEndRound;
  steps_.push_back({.kind = kind, .round = participants_.round, .text = std::move(text), .gentle = gentle});
  if (kind == MembershipStep::Kind::kEndRound) end(participants_.round, {}, true, now);
}

void MembershipTable::end(int round, const std::optional<Fault>& fault, bool continues, Time now) {
  if (over_) return;
  if (!running_ || round != participants_.round) {
    if (!continues) over_ = round >= participants_.round;  // what was decided elsewhere overrides what we had in mind
    if (over_) refuse_all({.code = Code::kAborted, .detail = "the job has ended"});
    return;
  }
  // A duplicate of a node that took part to the end was a mistake, however the job ended.
  if (!continues)
    for (const std::string& holder : suspected()) is_alive(holder, Time::max());
  running_ = false;
  grow_.reset();
  if (fault && continues) participants_.past.push_back(*fault);
  if (!continues) {
    over_ = true;
    return refuse_all({.code = Code::kAborted, .detail = "the job has ended"});
  }
  began_ = now;
  last_call_.reset();
  if (int(waiting_.size()) >= limits_.min) call_last(now);
  check(now);
}

void MembershipTable::tick(Time now) {
  // A node that still holds the number by now is alive.
  std::vector<std::pair<JoinRequest, Time>> duplicates = std::exchange(duplicates_, {});
  for (auto& [duplicate, since] : duplicates) {
    const bool patient = now - since < limits_.lost_after + kMissedBy;
    const std::string holder = holder_of(duplicate);
    if (holder.empty()) {
      request_join(std::move(duplicate), now);
    } else if (patient) {
      duplicates_.emplace_back(std::move(duplicate), since);
    } else {
      refuse_duplicate(duplicate, holder);
    }
  }
  if (running_ && grow_ && now >= *grow_) {
    std::vector<std::string> names;
    for (const Waiting* node : in_order()) names.push_back(describe(node->request));
    if (names.empty()) {  // gone again
      grow_.reset();
    } else {
      end_running(join(names, ", ") + " joined", now, /*gentle=*/true);
    }
  }
  check(now);
}

bool MembershipTable::all_expected() const {
  return participants_.round >= 0 && std::all_of(members_.begin(), members_.end(), [&](const auto& member) {
           return member.second.gone || waiting_.contains(member.first);
         });
}

// Half of the nodes that may still live, with the coordinator, are enough: the other half has no coordinator.
bool MembershipTable::minority() const {
  std::size_t could = 0, are = 0;
  for (const auto& [id, member] : members_) {
    could += !member.certain;
    are += waiting_.contains(id);
  }
  return 2 * are < could;
}

bool MembershipTable::enough(Time now) const {
  const int count = int(waiting_.size());
  if (count < limits_.min) return false;
  const bool last_call_is_over = last_call_ && now >= *last_call_;
  // A spare does not step in for a node that is on its way.
  if (!last_call_is_over && !(participants_.round < 0 ? count >= limits_.max : all_expected())) return false;
  return !minority();  // last: it looks at every node, and each that comes asks
}

void MembershipTable::check(Time now) {
  if (running_ || over_) return;
  if (enough(now)) return complete(now);
  if (now - began_ < limits_.join || (waiting_.empty() && participants_.round < 0)) return;
  Error error = too_late(now);
  if (participants_.round >= 0) {
    over_ = true;
    say(error.detail);
  }
  refuse_all(std::move(error));
  began_ = now;
}

std::vector<const MembershipTable::Waiting*> MembershipTable::in_order() const {
  std::vector<std::pair<std::tuple<int, int, std::size_t>, const Waiting*>> keyed;
  keyed.reserve(waiting_.size());
  for (const auto& [id, here] : waiting_) {
    const auto member = members_.find(id);
    const int before = member == members_.end() || limits_.numbered ? INT32_MAX : member->second.node;
    const int wanted = here.request.wanted < 0 ? INT32_MAX : here.request.wanted;
    keyed.push_back({{before, wanted, here.order}, &here});
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<const Waiting*> order;
  order.reserve(keyed.size());
  for (const auto& [key, here] : keyed) order.push_back(here);
  return order;
}

void MembershipTable::complete(Time now) {
  auto order = in_order();
  Participants next{
      .round = participants_.round + 1, .nodes = {}, .past = std::move(participants_.past), .standby = {}};
  for (const Waiting* node : order) next.round = std::max(next.round, node->request.last_round + 1);
  const std::size_t count = std::min(order.size(), std::size_t(limits_.max));
  std::vector<NodeNote> notes;
  for (std::size_t i = 0; i < count; ++i) notes.push_back(order[i]->request.note);
  if (const Status agreed = check_rank_counts(notes); !agreed) {
    participants_.past = std::move(next.past);
    return refuse_all(agreed.error());
  }
  next.nodes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) next.nodes.push_back(order[i]->request);
  next.standby = standby_among(next.nodes);
  members_.clear();
  for (std::size_t node = 0; node < count; ++node) {
    const JoinRequest& request = next.nodes[node];
    members_[request.id] = Member{.node = int(node)};
    if (limits_.numbered) numbers_.erase(request.wanted);
    waiting_.erase(request.id);
  }
  participants_ = std::move(next);
  running_ = true;
  last_call_.reset();
  grow_.reset();
  began_ = now;
  for (const auto& [id, here] : waiting_) say(describe(here.request) + " waits as a spare");
  steps_.push_back({.kind = MembershipStep::Kind::kComplete, .participants = participants_});
}

// If too few nodes would remain, the lost one has to come back anyway, to the address that it knows.
std::string MembershipTable::standby_among(const std::vector<JoinRequest>& nodes) const {
  if (!limits_.failover) return {};
  std::string first;
  int others = 0;
  for (const JoinRequest& request : nodes) {
    if (request.id == self_) continue;
    ++others;
    if (first.empty() || request.id == participants_.standby) first = request.id;
  }
  return others >= limits_.min ? first : std::string();
}

std::string MembershipTable::waiting_text(Time now) const {
  if (running_ || over_) return {};
  const auto order = in_order();
  std::vector<std::string> came;
  for (const Waiting* node : order) {
    if (came.size() == kMostNamed) {
      came.push_back("and " + std::to_string(order.size() - kMostNamed) + " more");
      break;
    }
    came.push_back(describe(node->request));
  }
  const std::size_t wanted = std::size_t(limits_.min);
  std::string text = std::to_string(order.size()) + " of " + (limits_.min == limits_.max ? "" : "at least ") +
                     nodes_text(wanted) + " joined after " + seconds_text(seconds_between(began_, now)) + " of " +
                     seconds_text(to_seconds(limits_.join));
  if (!came.empty()) text += ": " + join(came, ", ");
  std::vector<std::string> missing;
  if (participants_.round >= 0) {
    for (const auto& [id, member] : members_) {
      if (waiting_.contains(id) || member.certain) continue;
      missing.push_back(describe(participants_.nodes[std::size_t(member.node)], member.node) +
                        (member.gone ? ", lost" : ""));
    }
    std::sort(missing.begin(), missing.end());
    if (missing.size() > kMostNamed) missing.resize(kMostNamed);
    if (minority()) text += "; fewer than half of the last round, and a minority never continues";
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
               .detail = waiting_text(now),
               .hint = std::string("are the missing nodes started, with the same --nnodes and ") +
                       (limits_.numbered ? "--master-addr? Wait longer with --connect-timeout"
                                         : "--rdzv-endpoint? Wait longer with --rdzv-conf join_timeout=SECONDS")};
}

std::size_t MembershipTable::others() const {
  std::size_t count = waiting_.size() - waiting_.count(self_) + duplicates_.size();
  for (const auto& [id, member] : members_) count += !member.gone && id != self_ && !waiting_.contains(id);
  return count;
}

bool MembershipTable::knows(const std::string& id) const {
  const auto member = members_.find(id);
  return waiting_.contains(id) || (member != members_.end() && !member->second.gone);
}

}  // namespace tutti::launch::membership
