// One thread and one table, so that nothing here needs a lock: it waits for notes a tenth of a second at a time, and
// looks in between at the heartbeats and at what ended the round. Ten thousand agents are ten thousand short notes and
// as many short answers; they do not contend for one key.
//
// If the store's standby is silent for a moment, the store answers nobody: a call that decides something is made again
// until it is answered.
//
// Everything that decides is in the store: the term, the participants, the ends. A coordinator that is cut off can
// decide nothing any more, and one that takes over reads there how far the last one came.
#include "tutti/launch/membership/coordinator.h"

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kCoordinationTurn = std::chrono::milliseconds(100);
constexpr auto kCoordinationCallLimit = std::chrono::seconds(5);
constexpr auto kInformEvery = std::chrono::seconds(2);   // the nodes that wait
constexpr auto kAskEvery = std::chrono::seconds(1);      // whether we still coordinate
constexpr auto kArbiterLimit = std::chrono::seconds(3);  // for a node that has lost us to tell the arbiter
constexpr int kNotesATurn = 20000;
constexpr int kLooksATurn = 1000;
constexpr std::size_t kAssignmentsACall = 500;

// A process that was stopped (SIGSTOP, a debugger, a suspended machine) finds its turn far longer than intended, and
// what it then hears is what the others did because of that.
class Sleep {
 public:
  explicit Sleep(Duration limit) : limit_(limit) {}
  void next_turn() {
    const auto time = now();
    if (time - turn_ > limit_) length_ = time - turn_, woke_ = time;
    turn_ = time;
  }
  bool just_over() const { return length_ > Duration(0) && now() - woke_ < kArbiterLimit; }
  std::string text() const {
    return "was stopped for " + seconds_text(to_seconds(length_)) + ", longer than the " +
           seconds_text(to_seconds(limit_)) +
           " after which the other nodes count it as lost (SIGSTOP, a debugger, or a machine that was suspended?)";
  }

 private:
  const Duration limit_;
  Duration length_{};
  Clock::time_point turn_ = now(), woke_{};
};

}  // namespace

Result<std::unique_ptr<Coordinator>> Coordinator::claim(std::unique_ptr<Store> store, CoordinatorOptions options,
                                                        const std::optional<std::string>& before) {
  const auto last = before ? parse_coordinator(*before) : std::nullopt;
  const HeartbeatTimes times{.lost_after = options.limits.lost_after};
  auto center = TUTTI_TRY(HeartbeatCenter::open(options.address, options.port, options.credentials, times));
  CoordinatorAddress me{
      .term = last ? last->term + 1 : 0, .id = options.id, .host = options.host, .address = center->address()};
  me.proof = proof_of(options.credentials, me);
  const auto claimed = TUTTI_TRY(store->compare_set(keys::kCoordinator, before, encode(me)));
  if (!claimed.stored) return std::unique_ptr<Coordinator>();
  auto coordinator = TUTTI_TRY(as_result([&] {
    return std::unique_ptr<Coordinator>(new Coordinator(std::move(store), std::move(options), me, std::move(center)));
  }));
  TUTTI_TRY(coordinator->resume());
  coordinator->thread_ = TUTTI_TRY(start_thread([c = coordinator.get()] { c->run(); }));
  return coordinator;
}

Coordinator::Coordinator(std::unique_ptr<Store> store, CoordinatorOptions options, CoordinatorAddress me,
                         std::unique_ptr<HeartbeatCenter> center)
    : store_(std::move(store)),
      options_(std::move(options)),
      me_(std::move(me)),
      center_(std::move(center)),
      table_(options_.limits, options_.id, now()) {
  store_->set_call_timeout(kCoordinationCallLimit);
  if (options_.server != nullptr)
    primary_ = std::make_unique<FailoverPrimary>(*options_.server, *center_, *options_.vote, number_of(options_.id),
                                                 options_.say);
}

Coordinator::~Coordinator() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

template <class Call>
auto Coordinator::insist(Call call) -> decltype(call()) {
  for (;;) {
    auto answer = call();
    if (answer.ok() || answer.error().code != Code::kTimeout || stop_) return answer;
  }
}

// How far the last coordinator came.
Status Coordinator::resume() {
  if (!TUTTI_TRY(store_->check({keys::kParticipants}))) return {};
  auto last = parse_participants(TUTTI_TRY(store_->get(keys::kParticipants, Deadline::after(kCoordinationCallLimit))));
  if (!last) return {};
  const int round = last->round;
  const bool ended = TUTTI_TRY(store_->check({keys::end(round)}));
  if (ended) {
    const RoundEnd end =
        parse_round_end(TUTTI_TRY(store_->get(keys::end(round), Deadline::after(kCoordinationCallLimit))));
    if (end.kind == RoundEnd::Kind::kFault && end.again) last->past.push_back(end.fault);
  }
  for (const JoinRequest& request : last->nodes)
    if (request.id != options_.id) center_->expect(number_of(request.id));
  center_->set_round(round);
  table_.resume(*std::move(last), ended, now());
  if (!options_.predecessor.empty()) {
    center_->forget(number_of(options_.predecessor));
    table_.lose(options_.predecessor, "is lost: it served the store, which another node serves now", true, now());
  }
  return {};
}

void Coordinator::run() {
  Sleep sleep(options_.limits.lost_after);
  while (!stop_) {
    if (is_replaced() || !take_notes()) {
      over_ = true;
      MutexLock lock(mutex_);
      return changed_.notify_all();
    }
    sleep.next_turn();
    look_for_end();
    look_for_silent();
    look_for_suspected();
    table_.tick(now());
    expect_others();
    for (MembershipStep& step : table_.take()) {
      // In other jobs a long turn may be a wait for the store.
      if (step.kind == MembershipStep::Kind::kFail && options_.limits.fixed() && sleep.just_over())
        step.text = "the agent of node 0 (" + options_.host + ") " + sleep.text() + "; then: " + step.text;
      carry_out(std::move(step));
    }
    inform_waiting();
    check_readers();
    count_others();
  }
}

// An agent that heard nothing of us for long enough may have taken the part.
bool Coordinator::is_replaced() {
  if (now() - asked_ < kAskEvery) return false;
  asked_ = now();
  const auto text = store_->get(keys::kCoordinator, Deadline::after(kCoordinationCallLimit));
  const auto known = text.ok() ? parse_coordinator(*text) : std::nullopt;
  if (known && known->term != me_.term) {
    options_.say(known->host + " coordinates the job now");
    return true;
  }
  if (!options_.arbiter) return false;
  show_life();
  ask_arbiter();
  return false;
}

// For nodes that do not hear us: as long as this value changes none of them takes the part. In a minority we would
// decide nothing, so another node may have it.
void Coordinator::show_life() {
  if (!table_.in_minority()) (void)store_->set(keys::alive(me_.term), std::to_string(++beats_));  // again in a second
}

// A node that lives and has lost us says so there within seconds, and counts. One that does not is dead, or cut off
// from the store as well, and then it cannot take part.
void Coordinator::ask_arbiter() {
  for (auto at = missing_.begin(); at != missing_.end();) {
    const auto& [id, since] = *at;
    const bool late = now() - since > options_.limits.lost_after + kArbiterLimit;
    const auto told = store_->check({keys::misses(me_.term, id)});
    if (told.ok() && !*told && late && !table_.knows(id)) table_.lose(id, "is lost", true, now());
    at = told.ok() && (*told || late) ? missing_.erase(at) : std::next(at);
  }
}

// The end of a round is in the store before any node comes again because of it, so it is read first.
bool Coordinator::take_notes() {
  auto note = store_->pop(keys::inbox(me_.term), Deadline::after(kCoordinationTurn));
  look_for_end();
  for (int count = 0; note.ok() && count < kNotesATurn; ++count) {
    read_note(*note);
    const auto more = store_->queue_length(keys::inbox(me_.term));
    if (!more.ok() || *more == 0) return true;
    note = store_->pop(keys::inbox(me_.term), Deadline::after(kCoordinationCallLimit));
  }
  if (note.ok() || note.error().code == Code::kTimeout || stop_) return true;
  options_.say("the coordinator has lost the store: " + to_string(note.error()));
  return false;
}

void Coordinator::read_note(const std::string& text) {
  auto note = parse_note(text);
  if (!note) return options_.say("a node sent a message that cannot be parsed: does it run another version of tutti?");
  if (!note->join) {
    center_->forget(number_of(note->leave));
    return table_.leave(note->leave, now());
  }
  JoinRequest& request = *note->join;
  if (request.id != options_.id) center_->expect(number_of(request.id));
  if (options_.arbiter && request.last_round >= 0)  // it hears us; if this fails it may count though it is dead
    (void)store_->remove(keys::misses(me_.term, request.id));
  table_.request_join(std::move(request), now());
}

void Coordinator::look_for_end() {
  if (!table_.running()) return;
  const int round = table_.participants().round;
  const auto there = store_->check({keys::end(round)});
  if (!there.ok() || !*there) return;
  const auto value = store_->get(keys::end(round), Deadline::after(kCoordinationCallLimit));
  if (!value.ok()) return;
  const RoundEnd end = parse_round_end(*value);
  const bool fault = end.kind == RoundEnd::Kind::kFault;
  table_.end(round, fault ? std::optional(end.fault) : std::nullopt, end.again, now());
}

void Coordinator::look_for_silent() {
  for (const auto& [number, silence, certain] : center_->silent()) {
    center_->forget(number);
    unread_.erase(id_of(number));
    if (options_.arbiter && !certain) missing_[id_of(number)] = now();
    table_.lose(id_of(number),
                certain ? "is lost: its agent ended without leaving the job"
                        : "is lost: no heartbeat of its agent arrived for " + seconds_text(to_seconds(silence)),
                certain, now());
  }
}

void Coordinator::look_for_suspected() {
  for (const std::string& id : table_.suspected())
    if (const auto when = id == options_.id ? now() : center_->heard(number_of(id))) table_.is_alive(id, *when);
}

void Coordinator::carry_out(MembershipStep step) {
  switch (step.kind) {
    case MembershipStep::Kind::kSay:
      return options_.say(step.text);
    case MembershipStep::Kind::kComplete:
      return assign_all(step.participants);
    case MembershipStep::Kind::kRefuse:
      return refuse(step);
    case MembershipStep::Kind::kEndRound:
    case MembershipStep::Kind::kFail:
      return end_round(step);
  }
}

// Our own agent comes last: it ends when it reads this, and must not take the store away before the others have read
// it.
void Coordinator::refuse(const MembershipStep& step) {
  const std::string text = encode(Assignment{.refused = step.error});
  std::vector<std::string> own;
  for (const JoinRequest& request : step.who) {
    const std::string key = keys::assignment(request.id, request.visit);
    if (request.id == options_.id) {
      own.push_back(key);
    } else if (store_->set(key, text)) {
      unread_[request.id] = key;
    }
  }
  expect_others();
  for (const std::string& key : own) {
    const Status told = insist([&] { return store_->set(key, text); });
    if (!told.ok()) options_.say("this node could not learn why it was rejected: " + to_string(told.error()));
  }
}

// A node that has read its assignment removes it.
void Coordinator::check_readers() {
  int looks = 0;
  for (auto key = unread_.begin(); key != unread_.end() && ++looks <= kLooksATurn;) {
    const auto there = store_->check({key->second});
    key = there.ok() && !*there ? unread_.erase(key) : std::next(key);
  }
}

// Called before our own agent is told anything, because it may then ask at once how many others are left. The counts
// only grow here: nodes that are about to be refused are not in the table any more.
void Coordinator::expect_others() {
  MutexLock lock(mutex_);
  readers_ = std::max(readers_, unread_.size());
  others_ = std::max(others_, table_.others() + unread_.size());
}

void Coordinator::count_others() {
  MutexLock lock(mutex_);
  readers_ = unread_.size();
  others_ = table_.others() + readers_;
  changed_.notify_all();
}

void Coordinator::assign_all(const Participants& participants) {
  center_->set_round(participants.round);
  const std::string text = encode(participants);
  Status told = insist([&] {
    return store_->multi_set({keys::participants(participants.round), keys::kParticipants}, {text, text});
  });
  if (told && primary_) primary_->set_voters(Voters::of(participants));
  if (participants.round > 0)
    (void)store_->remove(keys::participants(participants.round - 1));  // nobody reads it; it only takes room
  std::vector<std::string> names, values;
  for (std::size_t node = 0; told && node < participants.nodes.size(); ++node) {
    const JoinRequest& request = participants.nodes[node];
    names.push_back(keys::assignment(request.id, request.visit));
    values.push_back(encode(Assignment{.round = participants.round, .node = int(node)}));
    if (names.size() < kAssignmentsACall && node + 1 < participants.nodes.size()) continue;
    told = insist([&] { return store_->multi_set(names, values); });
    names.clear(), values.clear();
  }
  if (!told)
    options_.say("the nodes could not be notified of round " + std::to_string(participants.round) + ": " +
                 to_string(told.error()));
}

// First wins: a fault that another node reported in this moment is what ended the round.
void Coordinator::end_round(const MembershipStep& step) {
  RoundEnd end{.kind = RoundEnd::Kind::kMembership, .again = true, .text = step.text, .gentle = step.gentle};
  if (step.kind == MembershipStep::Kind::kFail) {
    end = {.kind = RoundEnd::Kind::kFault, .fault = {.text = step.text, .code = kExitRendezvous}};
    if (options_.judge) end.verdict = options_.judge(table_.participants().past, end.fault);
    end.again = end.verdict.restart;
  }
  const std::string text = encode(end);
  const auto ended = insist([&] { return store_->compare_set(keys::end(step.round), std::nullopt, text); });
  if (!ended.ok()) return;
  if (ended->stored || ended->value == text) {
    // It breaks off the ranks' collectives; without it their agents end them half a second later. An arbiter is not the
    // ranks' store: the node that serves that learns how the round ended.
    if (!step.gentle && !options_.arbiter) (void)store_->set(keys::fault(step.round), step.text);
  } else {
    end = parse_round_end(ended->value.value_or(""));
  }
  const bool fault = end.kind == RoundEnd::Kind::kFault;
  if (fault && end.again && !table_.running()) table_.remember(end.fault);
  table_.end(step.round, fault ? std::optional(end.fault) : std::nullopt, end.again, now());
  for (MembershipStep& next : table_.take()) carry_out(std::move(next));
}

void Coordinator::inform_waiting() {
  if (now() - informed_ < kInformEvery) return;
  informed_ = now();
  std::string text = table_.waiting_text(now());
  if (text.empty()) text = "round " + std::to_string(table_.participants().round) + " is running";
  if (text != waiting_text_ && store_->set(keys::kWaiting, text)) waiting_text_ = std::move(text);
}

bool Coordinator::wait_for_others(Deadline deadline) {
  MutexLock lock(mutex_);
  while (others_ > 0 && !over_ && !deadline.expired()) changed_.wait_until(lock, deadline.at());
  return others_ == 0 && !over_;
}

void Coordinator::wait_for_readers(Deadline deadline) {
  MutexLock lock(mutex_);
  while (readers_ > 0 && !over_ && !deadline.expired()) changed_.wait_until(lock, deadline.at());
}

}  // namespace tutti::launch::membership
