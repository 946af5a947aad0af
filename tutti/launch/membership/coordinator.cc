// One thread and one book, so that nothing here needs a lock: it waits for notes a tenth of a second at a time, and
// looks in between at the heartbeats and at what ended the round. Ten thousand agents are ten thousand short notes and
// as many short answers; they do not contend for one key.
//
// Where the store has a successor that is silent for a moment, the store answers nobody: a call that decides something
// is made again until it is answered.
//
// Everything that decides lies in the store: the term, the rosters, the ends. A coordinator that is cut off can decide
// nothing any more, and one that takes over reads there how far the last one came.
#include "tutti/launch/membership/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/transport/crypto.h"

namespace tutti {
namespace {

constexpr auto kCoordinationTurn = std::chrono::milliseconds(100);
constexpr auto kCoordinationCallLimit = std::chrono::seconds(5);
constexpr auto kTellEvery = std::chrono::seconds(2);  // the words for those that wait
constexpr auto kAskEvery = std::chrono::seconds(1);   // whether we still coordinate
constexpr auto kWordLimit = std::chrono::seconds(3);  // for a node that has lost us to tell the witness
constexpr int kNotesATurn = 20000;
constexpr int kLooksATurn = 1000;
constexpr std::size_t kSeatsACall = 500;

// A process that was stopped (SIGSTOP, a debugger, a suspended machine) finds its turn far longer than it was to be,
// and what it then hears is what the others did because of it.
class Sleep {
 public:
  explicit Sleep(Duration limit) : limit_(limit) {}
  void next_turn() {
    const auto time = now();
    if (time - turn_ > limit_) length_ = time - turn_, woke_ = time;
    turn_ = time;
  }
  bool just_over() const { return length_ > Duration(0) && now() - woke_ < kWordLimit; }
  std::string words() const {
    return "was itself stopped for " + seconds_text(to_seconds(length_)) + ", longer than the " +
           seconds_text(to_seconds(limit_)) +
           " after which the others take it for lost (SIGSTOP, a debugger, or a machine that was suspended?)";
  }

 private:
  const Duration limit_;
  Duration length_{};
  Clock::time_point turn_ = now(), woke_{};
};

}  // namespace

std::string come_note(const JoinRequest& comer) { return "come " + encode(comer); }
std::string leave_note(const std::string& id) { return "leave " + id; }

std::string proof_of(const Credentials& credentials, const CoordinatorAddress& coordinator) {
  CoordinatorAddress bare = coordinator;
  bare.proof.clear();
  const std::string text = encode(bare);
  const crypto::Digest key =
      crypto::hkdf_sha256(credentials.secret.bytes(), crypto::sha256(credentials.job), "tutti coordinator");
  std::string hex;
  for (const std::byte byte : crypto::hmac_sha256(key, std::as_bytes(std::span(text))))
    hex += fmt::format("{:02x}", int(byte));
  return hex;
}

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
  auto coordination = TUTTI_TRY(as_result([&] {
    return std::unique_ptr<Coordinator>(new Coordinator(std::move(store), std::move(options), me, std::move(center)));
  }));
  TUTTI_TRY(coordination->resume());
  coordination->thread_ = TUTTI_TRY(start_thread([c = coordination.get()] { c->run(); }));
  return coordination;
}

Coordinator::Coordinator(std::unique_ptr<Store> store, CoordinatorOptions options, CoordinatorAddress me,
                         std::unique_ptr<HeartbeatCenter> center)
    : store_(std::move(store)),
      options_(std::move(options)),
      me_(std::move(me)),
      center_(std::move(center)),
      book_(options_.limits, options_.id, now()) {
  store_->set_call_timeout(kCoordinationCallLimit);
  if (options_.server != nullptr)
    incumbent_ = std::make_unique<FailoverPrimary>(*options_.server, *center_, *options_.ballot, number_of(options_.id),
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
  if (!TUTTI_TRY(store_->check({keys::kRoster}))) return {};
  auto last = parse_roster(TUTTI_TRY(store_->get(keys::kRoster, Deadline::after(kCoordinationCallLimit))));
  if (!last) return {};
  const int round = last->round;
  const bool ended = TUTTI_TRY(store_->check({keys::end(round)}));
  if (ended) {
    const RoundEnd news = parse_news(TUTTI_TRY(store_->get(keys::end(round), Deadline::after(kCoordinationCallLimit))));
    if (news.kind == RoundEnd::Kind::kFault && news.again) last->past.push_back(news.fault);
  }
  for (const JoinRequest& comer : last->nodes)
    if (comer.id != options_.id) center_->expect(number_of(comer.id));
  center_->set_round(round);
  book_.resume(*std::move(last), ended, now());
  if (!options_.predecessor.empty()) {
    center_->forget(number_of(options_.predecessor));
    book_.lose(options_.predecessor, "is lost: it served the store, and another node does now", true, now());
  }
  return {};
}

void Coordinator::run() {
  Sleep sleep(options_.limits.lost_after);
  while (!stop_) {
    if (is_deposed() || !take_notes()) {
      over_ = true;
      MutexLock lock(mutex_);
      return changed_.notify_all();
    }
    sleep.next_turn();
    look_for_end();
    look_for_silent();
    look_for_doubted();
    book_.tick(now());
    expect_others();
    for (MembershipStep& step : book_.take()) {
      // Only where the store is never waited for is a long turn a sleep.
      if (step.kind == MembershipStep::Kind::kFail && options_.limits.fixed() && sleep.just_over())
        step.text = "the agent of node 0 (" + options_.host + ") " + sleep.words() + "; then: " + step.text;
      carry_out(std::move(step));
    }
    tell_waiting();
    look_who_has_read();
    count_others();
  }
}

// Somebody who heard nothing of us for long enough has taken the part: two books would be one too many.
bool Coordinator::is_deposed() {
  if (now() - asked_ < kAskEvery) return false;
  asked_ = now();
  const auto text = store_->get(keys::kCoordinator, Deadline::after(kCoordinationCallLimit));
  const auto known = text.ok() ? parse_coordinator(*text) : std::nullopt;
  if (known && known->term != me_.term) {
    options_.say(known->host + " coordinates the job now");
    return true;
  }
  if (!options_.limits.witness) return false;
  show_life();
  ask_witness();
  return false;
}

// For those that do not hear us: as long as this changes none of them takes the part. In a minority we would decide
// nothing, so another may have it.
void Coordinator::show_life() {
  if (!book_.in_minority()) (void)store_->set(keys::alive(me_.term), std::to_string(++beats_));  // again in a second
}

// Who lives and has lost us says so there within seconds, and counts; who does not is dead, or cut off from the store
// as well, and then it can take part in nothing.
void Coordinator::ask_witness() {
  for (auto at = missing_.begin(); at != missing_.end();) {
    const auto& [id, since] = *at;
    const bool late = now() - since > options_.limits.lost_after + kWordLimit;
    const auto told = store_->check({keys::misses(me_.term, id)});
    if (told.ok() && !*told && late && !book_.knows(id)) book_.lose(id, "is lost", true, now());
    at = told.ok() && (*told || late) ? missing_.erase(at) : std::next(at);
  }
}

// What ended a round was in the store before anybody came again because of it: so it is looked at first.
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
  if (text.starts_with("leave ")) {
    const std::string id = text.substr(6);
    center_->forget(number_of(id));
    return book_.leave(id, now());
  }
  auto comer = text.starts_with("come ") ? parse_comer(text.substr(5)) : std::nullopt;
  if (!comer) return options_.say("a node has come whose words are not understood: is it another version of tutti?");
  if (comer->id != options_.id) center_->expect(number_of(comer->id));
  if (options_.limits.witness && comer->last_round >= 0)  // it hears us; if this fails it may count though it is dead
    (void)store_->remove(keys::misses(me_.term, comer->id));
  book_.come(*std::move(comer), now());
}

void Coordinator::look_for_end() {
  if (!book_.running()) return;
  const int round = book_.roster().round;
  const auto there = store_->check({keys::end(round)});
  if (!there.ok() || !*there) return;
  const auto value = store_->get(keys::end(round), Deadline::after(kCoordinationCallLimit));
  if (!value.ok()) return;
  const RoundEnd news = parse_news(*value);
  const bool fault = news.kind == RoundEnd::Kind::kFault;
  book_.end(round, fault ? std::optional(news.fault) : std::nullopt, news.again, now());
}

void Coordinator::look_for_silent() {
  for (const auto& [number, silence, certain] : center_->silent()) {
    center_->forget(number);
    unread_.erase(id_of(number));
    if (options_.limits.witness && !certain) missing_[id_of(number)] = now();
    book_.lose(id_of(number),
               certain ? "is lost: its agent has ended without a word"
                       : "is lost: nothing was heard of its agent for " + seconds_text(to_seconds(silence)),
               certain, now());
  }
}

void Coordinator::look_for_doubted() {
  for (const std::string& id : book_.doubted())
    if (const auto when = id == options_.id ? now() : center_->heard(number_of(id))) book_.is_alive(id, *when, now());
}

void Coordinator::carry_out(MembershipStep step) {
  switch (step.kind) {
    case MembershipStep::Kind::kSay:
      return options_.say(step.text);
    case MembershipStep::Kind::kComplete:
      return seat_all(step.roster);
    case MembershipStep::Kind::kRefuse:
      return refuse(step);
    case MembershipStep::Kind::kEndRound:
    case MembershipStep::Kind::kFail:
      return end_round(step);
  }
}

// Our own agent comes last: it ends on that word, and may take the store with it only when the others have read theirs.
void Coordinator::refuse(const MembershipStep& step) {
  const std::string text = encode(Assignment{.refused = step.error});
  std::vector<std::string> own;
  for (const JoinRequest& comer : step.who) {
    const std::string seat = keys::seat(comer.id, comer.visit);
    if (comer.id == options_.id) {
      own.push_back(seat);
    } else if (store_->set(seat, text)) {
      unread_[comer.id] = seat;
    }
  }
  expect_others();
  for (const std::string& seat : own) {
    const Status told = insist([&] { return store_->set(seat, text); });
    if (!told.ok()) options_.say("this node could not be told why it is turned away: " + to_string(told.error()));
  }
}

// Who has read its seat removes it.
void Coordinator::look_who_has_read() {
  int looks = 0;
  for (auto seat = unread_.begin(); seat != unread_.end() && ++looks <= kLooksATurn;) {
    const auto there = store_->check({seat->second});
    seat = there.ok() && !*there ? unread_.erase(seat) : std::next(seat);
  }
}

// Before anybody is told, who may then ask at once: more than before, perhaps, and never fewer, for those that are
// about to be told are not in the book any more.
void Coordinator::expect_others() {
  MutexLock lock(mutex_);
  readers_ = std::max(readers_, unread_.size());
  others_ = std::max(others_, book_.others() + unread_.size());
}

void Coordinator::count_others() {
  MutexLock lock(mutex_);
  readers_ = unread_.size();
  others_ = book_.others() + readers_;
  changed_.notify_all();
}

void Coordinator::seat_all(const Participants& roster) {
  center_->set_round(roster.round);
  const std::string text = encode(roster);
  Status told = insist([&] { return store_->multi_set({keys::roster(roster.round), keys::kRoster}, {text, text}); });
  if (told && incumbent_) {
    Electorate electorate{.round = roster.round, .members = {}};
    for (const JoinRequest& comer : roster.nodes) electorate.members.push_back(number_of(comer.id));
    incumbent_->set_electorate(std::move(electorate));
  }
  if (roster.round > 0) (void)store_->remove(keys::roster(roster.round - 1));  // nobody reads it; it only takes room
  std::vector<std::string> names, seats;
  for (std::size_t node = 0; told && node < roster.nodes.size(); ++node) {
    const JoinRequest& comer = roster.nodes[node];
    names.push_back(keys::seat(comer.id, comer.visit));
    seats.push_back(encode(Assignment{.round = roster.round, .node = int(node)}));
    if (names.size() < kSeatsACall && node + 1 < roster.nodes.size()) continue;
    told = insist([&] { return store_->multi_set(names, seats); });
    names.clear(), seats.clear();
  }
  if (!told)
    options_.say("the nodes could not be told of round " + std::to_string(roster.round) + ": " +
                 to_string(told.error()));
}

// First wins: a fault that another node told in this moment is what ended the round.
void Coordinator::end_round(const MembershipStep& step) {
  RoundEnd news{.kind = RoundEnd::Kind::kMembership, .again = true, .text = step.text, .gentle = step.gentle};
  if (step.kind == MembershipStep::Kind::kFail) {
    news = {.kind = RoundEnd::Kind::kFault, .fault = {.text = step.text, .code = kExitRendezvous}};
    if (options_.judge) news.verdict = options_.judge(book_.roster().past, news.fault);
    news.again = news.verdict.restart;
  }
  const std::string text = encode(news);
  const auto ended = insist([&] { return store_->compare_set(keys::end(step.round), std::nullopt, text); });
  if (!ended.ok()) return;
  if (ended->stored || ended->value == text) {
    // It breaks off the ranks' collectives; without it their agents end them half a second later. With etcd this is not
    // the ranks' store: who serves that hears how the round ended.
    if (!step.gentle && !options_.limits.witness) (void)store_->set(keys::fault(step.round), step.text);
  } else {
    news = parse_news(ended->value.value_or(""));
  }
  const bool fault = news.kind == RoundEnd::Kind::kFault;
  if (fault && news.again && !book_.running()) book_.remember(news.fault);
  book_.end(step.round, fault ? std::optional(news.fault) : std::nullopt, news.again, now());
  for (MembershipStep& next : book_.take()) carry_out(std::move(next));
}

void Coordinator::tell_waiting() {
  if (now() - told_ < kTellEvery) return;
  told_ = now();
  std::string text = book_.waiting_words(now());
  if (text.empty()) text = "round " + std::to_string(book_.roster().round) + " is running";
  if (text != told_words_ && store_->set(keys::kWaiting, text)) told_words_ = std::move(text);
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

}  // namespace tutti
