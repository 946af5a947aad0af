// Agents talk to each other through the store, and by heartbeats. One of them is the *coordinator*
// (membership/membership_table.h has its rules): the one that serves the store, or with etcd the first that claims the
// part. Meeting is:
//
//   reach the store; learn who coordinates; say "I have come" into its inbox; wait for a seat
//
// and whatever breaks on the way (the store, the coordinator) begins it anew, as long as the time to meet lasts. While
// it waits with a coordinator that answers, the coordinator alone decides when that is too long.
//
// A node that serves the store keeps doing so, and coordinating, through all of that; unless its successor has taken
// over. Then it steps down and comes as any other node does.
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tutti/base/text.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/launch/nodes.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kMeetingCallLimit = std::chrono::seconds(3);
constexpr auto kTry = std::chrono::seconds(5);  // to reach the store, before a line about it
constexpr auto kMeetingTurn = std::chrono::seconds(1);
constexpr auto kPause = std::chrono::milliseconds(500);
constexpr auto kShortPause = std::chrono::milliseconds(50);
constexpr double kSayEvery = 5;  // seconds

constexpr const char* kMinority = "this node hears fewer than half of the last round, and a minority never goes on";

// A port that the program can bind on this node, should it become node 0. Closed again at once.
int free_port(const std::string& host) {
  const auto listener = listen(Address{.host = host});
  return listener.ok() ? int(listener->address.port) : 0;
}

bool may_pass(const Error& error) {
  return error.code == Code::kTimeout || error.code == Code::kUnreachable || error.code == Code::kPeerLost;
}

}  // namespace

Result<Round> Nodes::meet_alone() {
  store_ = place_.server()->local();
  round_.store = place_.address();
  round_.unix_store = place_.unix_address_of(round_.store);
  round_.master_address = options_.master_address;
  round_.master_port = options_.master_port;
  round_.layout = Layout{.counts = {options_.counts.here}};
  round_.nodes = {NodeFacts{.host = options_.host, .ranks = options_.counts.here, .about = options_.about}};
  return round_;
}

Result<Round> Nodes::meet() {
  const int last = news_ ? round_.number : -1;
  if (news_ && news_->again && news_->kind == RoundEnd::Kind::kFault) past_.push_back(news_->fault);
  round_ = Round{.number = last + 1, .restarts_used = int(past_.size())};
  news_.reset();
  done_ = leaving_ = store_lost_ = false;
  watch_.reset();
  if (one_node()) return meet_alone();
  if (pulse_) pulse_->set_round(-1);
  ++visit_;
  round_.number = last;
  for (Deadline deadline = Deadline::after(options_.timeout);;) {
    TUTTI_TRY(reach(deadline));
    const auto seat = TUTTI_TRY(wait_for_seat());
    if (seat && seat->refused) {
      if (coordination_ && place_.server())
        coordination_->wait_for_readers(Deadline::after(kMeetingCallLimit));  // read here
      Error error = sent_home(*seat->refused);
      // Now who serves the store may go; if it is not told, it does so some seconds later.
      if (store_) (void)store_->remove(keys::seat(id_, visit_));
      return error;
    }
    if (seat) {
      auto round = sit_down(*seat);
      if (round.ok() || round.error().code == Code::kMismatch) return round;
      options_.say("round " + std::to_string(seat->round) +
                   " has gone before this node could take part: " + to_string(round.error()));
      ++visit_;
    }
    deadline = Deadline::after(options_.timeout);  // all was well until now
  }
}

// ---- the store and the coordinator ----

void Nodes::drop_store() {
  store_.reset();
  if (!place_.server()) coordination_.reset();
}

Status Nodes::reach(Deadline deadline) {
  for (;;) {
    TUTTI_TRY(wait_out_doubt(deadline));
    if (!store_) TUTTI_TRY(reach_store(deadline));
    if (const auto elsewhere = place_.signpost(store_.get())) {
      coordination_.reset();
      store_.reset();
      TUTTI_TRY(place_.follow_signpost(*elsewhere));
      continue;
    }
    if (!store_) continue;
    auto found = find_coordinator(deadline);
    if (found.ok()) {
      coordinator_ = *std::move(found);
      break;
    }
    if (!may_pass(found.error()) || deadline.expired()) return found.status();
    drop_store();
  }
  coordinator_words_ = coordinator_->host + " at " + coordinator_->address;
  if (coordination_ || (pulse_ && pulse_->center() == coordinator_->address)) return {};
  return open_pulse(*coordinator_);
}

Status Nodes::open_pulse(const CoordinatorAddress& coordinator) {
  const auto voter = [ballot = place_.ballot(), candidate = number_of(coordinator.id)](std::int32_t round) {
    return ballot->give(round, candidate);
  };
  pulse_ = TUTTI_TRY(Heartbeat::open(coordinator.address, number_of(id_), options_.credentials, place_.times(), voter));
  return {};
}

std::string Nodes::who_serves() const {
  switch (options_.backend) {
    case RendezvousBackend::kEtcd:
      return "etcd";
    case RendezvousBackend::kStatic:
      return "node 0";
    case RendezvousBackend::kElastic:
      break;
  }
  return "the node that serves the store";
}

Status Nodes::reach_store(Deadline deadline) {
  for (double next_line = 0;;) {
    auto connected = place_.connect(deadline.at_most(kTry));
    if (connected.ok()) {
      store_ = *std::move(connected);
      return {};
    }
    if (pulse_ && (pulse_->state() == Heartbeat::State::kSilent || pulse_->state() == Heartbeat::State::kGone))
      lose_coordinator();
    if (place_.signpost(nullptr)) return {};
    const Error& error = connected.error();
    if (!may_pass(error)) return error;
    if (deadline.expired()) return no_store(error, deadline);
    if (deadline.waited() >= next_line) {
      next_line = deadline.waited() + (place_.has_successor() ? kSayEvery : 0);
      options_.say("waiting for " + who_serves() + " at " + place_.address() + " for " +
                   seconds_text(deadline.waited()) + " of " + seconds_text(deadline.limit()));
    }
    TUTTI_TRY(pause(error.code == Code::kTimeout ? Duration(0) : kPause));  // told at once: no tight loop
  }
}

Error Nodes::no_store(Error error, Deadline deadline) const {
  error.waited = deadline.waited(), error.limit = deadline.limit();
  if (place_.has_successor()) {
    error.hint = place_.why_nobody_serves();
    return error;
  }
  if (const std::string holder = place_.holder_here(); !holder.empty())
    error.detail += "; that port of this machine is held by " + holder;
  if (!uses_etcd(options_) && error.errno_value == 0 && !error.hint.empty()) return error;  // of a name
  const std::string& host = options_.store.host;
  if (options_.backend == RendezvousBackend::kStatic && (host == "localhost" || is_loopback(options_.store))) {
    error.hint = host + " is each host's own loopback address: if node 0 is on another host, give " +
                 "--master-addr an address of that host; else, is node 0 started?";
    return error;
  }
  error.hint = "is " + who_serves() + " started, " +
               (uses_etcd(options_) ? "is that its address (--rdzv-endpoint)"
                                    : std::string("with the same ") + (options_.backend == RendezvousBackend::kStatic
                                                                           ? "--master-addr and --master-port"
                                                                           : "--rdzv-endpoint")) +
               ", and does a firewall let " + place_.address() + " through?";
  return error;
}

// A node that serves the store, and cannot reach its successor: the store answers nobody until that is settled.
Status Nodes::wait_out_doubt(Deadline deadline) {
  double next_line = 0;
  for (;;) {
    StoreServer* const server = place_.server();
    if (server == nullptr || (server->role() == StoreRole::kPrimary && !server->in_doubt())) return {};
    if (place_.is_deposed(deadline.at_most(kMeetingTurn))) {
      step_down();
      return {};
    }
    TUTTI_TRY(pause(kShortPause));
    if (deadline.expired()) return deadline.error(kMinority, "is the network between the nodes whole?");
    if (!coordination_ || !coordination_->is_cut_off() || deadline.waited() < next_line) continue;
    next_line = deadline.waited() + kSayEvery;
    options_.say(kMinority);
  }
}

void Nodes::step_down() {
  coordination_.reset();
  store_.reset();
  place_.stop_serving();
}

// Who serves the store claims the part before anybody else comes; with etcd whoever is first, or has missed the
// coordinator and still reaches the store.
Result<CoordinatorAddress> Nodes::find_coordinator(Deadline deadline) {
  double next_line = deadline.waited() + kSayEvery;
  for (;;) {
    std::optional<std::string> text;
    if (TUTTI_TRY(store_->check({keys::kCoordinator})))
      text = TUTTI_TRY(store_->get(keys::kCoordinator, Deadline::after(kMeetingCallLimit)));
    const auto known = text ? parse_coordinator(*text) : std::nullopt;
    const bool ours = known && known->id == id_;
    if (ours && coordination_) return *known;
    if (place_.server() || uses_etcd(options_)) {
      const bool another = known && !ours && !place_.server(), missed = another && known->id == suspect_;
      const auto sign = missed ? TUTTI_TRY(sign_of_life(*known)) : std::nullopt;
      if (another && (!missed || TUTTI_TRY(still_there(*known)))) {
        suspect_.clear();
        coordination_.reset();
        return *known;
      }
      if (missed && !suspect_ended_ && TUTTI_TRY(sign_of_life(*known)) != sign) {
        TUTTI_TRY(wait_out_cut(*known, next_line, deadline));
        continue;
      }
      coordination_.reset();
      TUTTI_TRY(claim(text));
      suspect_.clear();
      continue;
    }
    if (known && !ours && (known->id != suspect_ || (!place_.is_taken_over() && TUTTI_TRY(still_there(*known))))) {
      suspect_.clear();
      place_.back_to_primary();
      return *known;
    }
    TUTTI_TRY(wait_for_claim(next_line, deadline));
  }
}

// Whoever serves the store will coordinate in a moment.
Status Nodes::wait_for_claim(double& next_line, Deadline deadline) {
  TUTTI_TRY(pause(kShortPause));
  if (deadline.expired())
    return deadline.error("the store at " + place_.address() + " is there, but nobody coordinates the job",
                          "is this another tutti's store? Give the job its own --rdzv-endpoint");
  if (deadline.waited() < next_line) return {};
  next_line = deadline.waited() + kSayEvery;
  options_.say("waiting for a coordinator of the job at " + place_.address());
  return {};
}

// A cut that has healed, perhaps: the coordinator is asked once more before somebody takes its part.
Result<bool> Nodes::still_there(const CoordinatorAddress& suspect) {
  TUTTI_TRY(open_pulse(suspect));
  if (TUTTI_TRY(hears())) return true;
  pulse_.reset();
  return false;
}

// Waits for a heartbeat that comes back from now on, as long as it may yet.
Result<bool> Nodes::hears() const {
  const auto begin = now();
  const auto heard = [&] { return pulse_->ever_heard() && pulse_->silence() < now() - begin; };
  while (!heard() && pulse_->state() == Heartbeat::State::kWell) TUTTI_TRY(pause(kShortPause));
  return heard();
}

// What etcd hears of a coordinator: it changes once a second, as long as that one lives and may decide.
Result<std::optional<std::string>> Nodes::sign_of_life(const CoordinatorAddress& suspect) const {
  const std::string key = keys::alive(suspect.term);
  if (!TUTTI_TRY(store_->check({key}))) return std::optional<std::string>();
  return std::optional(TUTTI_TRY(store_->get(key, Deadline::after(kMeetingCallLimit))));
}

// The coordinator lives, and hears enough of the others: taking its part would only take the job from those.
Status Nodes::wait_out_cut(const CoordinatorAddress& coordinator, double& next_line, Deadline deadline) {
  TUTTI_TRY(store_->set(keys::misses(coordinator.term, id_), ""));  // it may have heard us once more meanwhile
  const std::string who = "the coordinator, " + coordinator.host + " at " + coordinator.address;
  if (deadline.expired())
    return deadline.error(who + ", is heard by etcd and not by this node",
                          "is the network between the nodes whole, also for UDP?");
  if (deadline.waited() < next_line) return {};
  next_line = deadline.waited() + kSayEvery;
  options_.say("etcd hears " + who + ", and this node does not: waiting until it does, for " +
               seconds_text(deadline.waited()) + " of " + seconds_text(deadline.limit()));
  return {};
}

Status Nodes::claim(const std::optional<std::string>& before) {
  StoreServer* const server = place_.server();
  const auto last = before ? parse_coordinator(*before) : std::nullopt;
  auto store = server ? server->local() : TUTTI_TRY(store_->clone(Deadline::after(kMeetingCallLimit)));
  coordination_ = TUTTI_TRY(
      Coordinator::claim(std::move(store),
                         {.limits = limits_of(options_),
                          .id = id_,
                          .host = options_.host,
                          .address = place_.local_address().empty() ? options_.store.host : place_.local_address(),
                          .port = server ? server->address().port : std::uint16_t(0),
                          .credentials = options_.credentials,
                          .judge = options_.judge,
                          .server = server,
                          .ballot = place_.ballot(),
                          .predecessor = server && last && last->id != id_ ? last->id : std::string(),
                          .say = options_.say},
                         before));
  if (coordination_) pulse_.reset();
  return {};
}

// ---- a seat ----

JoinRequest Nodes::comer() const {
  const bool ours = options_.node == 0 && options_.master_port > 0;
  return {.id = id_,
          .visit = visit_,
          .wanted = options_.node,
          .min = options_.min_nodes,
          .max = options_.nodes,
          .port = ours ? options_.master_port : free_port(place_.local_address()),
          .last_round = round_.number,
          .note = {.ranks = options_.counts.here,
                   .listed = options_.counts.all,
                   .host = options_.host,
                   .address = place_.local_address(),
                   .about = options_.about,
                   .pid = int(getpid())}};
}

bool Nodes::interrupted() const {
  pollfd fd{options_.interrupt, POLLIN, 0};
  return options_.interrupt >= 0 && poll(&fd, 1, 0) > 0;
}

// For what no event tells. kAborted: interrupted.
Status Nodes::pause(Duration length) const {
  pollfd fd{options_.interrupt, POLLIN, 0};
  const int limit = int(std::chrono::ceil<std::chrono::milliseconds>(length).count());
  if (poll(&fd, 1, limit) <= 0) return {};
  return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
}

// None: the store or the coordinator does not answer any more.
Result<std::optional<Assignment>> Nodes::wait_for_seat() {
  const auto lost_store = [&] {
    drop_store();
    return std::optional<Assignment>();
  };
  const std::string key = keys::seat(id_, visit_);
  place_.learn(store_);
  // Through etcd a word gets to a coordinator that this node is cut off from, and who then waited for it in vain.
  const bool reached = !uses_etcd(options_) || !pulse_ || TUTTI_TRY(hears());
  if (reached && !store_->push(keys::inbox(coordinator_->term), come_note(comer()))) return lost_store();
  auto watch = KeyWatch::open(*store_, key, Deadline::after(kMeetingCallLimit));
  if (!watch.ok()) return lost_store();
  const Clock::time_point begin = now();
  for (double next_line = kSayEvery;;) {
    pollfd fds[] = {
        {(*watch)->fd(), POLLIN, 0}, {options_.interrupt, POLLIN, 0}, {pulse_ ? pulse_->descriptor() : -1, POLLIN, 0}};
    (void)poll(fds, 3, int(std::chrono::milliseconds(kMeetingTurn).count()));
    if (fds[1].revents) return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
    if (coordination_ && coordination_->is_over()) {
      coordination_.reset();
      return std::optional<Assignment>();
    }
    if (coordination_ && coordination_->is_cut_off()) return lost_store();
    if (place_.server() && place_.signpost(nullptr)) return std::optional<Assignment>();
    if (const auto answer = (*watch)->try_read()) {
      if (!answer->ok()) return lost_store();
      return take_seat(**answer, key);
    }
    if (pulse_ && pulse_->state() != Heartbeat::State::kWell) {
      if (const Status heard = no_heartbeat(); !heard) return heard;
      options_.say("the coordinator (" + coordinator_words_ + ") does not answer any more");
      lose_coordinator();
      return std::optional<Assignment>();
    }
    if (!coordination_ && place_.has_successor() && !still_coordinates()) return std::optional<Assignment>();
    if (seconds_since(begin) < next_line) continue;
    next_line = seconds_since(begin) + kSayEvery;
    if (!say_what_is_missing()) return lost_store();
  }
}

// Another node may serve the store by now, and coordinate.
bool Nodes::still_coordinates() {
  const auto text = store_->get(keys::kCoordinator, Deadline::after(kMeetingCallLimit));
  if (!text.ok()) return false;
  const auto known = parse_coordinator(*text);
  return known && known->term == coordinator_->term;
}

Result<std::optional<Assignment>> Nodes::take_seat(const std::string& answer, const std::string& key) {
  auto seat = parse_seat(answer);
  if (!seat || !seat->refused) (void)store_->remove(key);  // nobody reads it again; it only takes room
  if (seat) return seat;
  return Error{.code = Code::kMismatch,
               .detail = "the coordinator (" + coordinator_words_ + ") says what is not understood",
               .hint = "install the same version of tutti on all nodes"};
}

// And says again that this node has come: while the store changed hands the first note may have been taken out of the
// inbox and lost. False: the store does not answer.
bool Nodes::say_what_is_missing() {
  place_.learn(store_);
  if (!store_->push(keys::inbox(coordinator_->term), come_note(comer()))) return false;
  const auto there = store_->check({keys::kWaiting});
  const auto words = there.ok() && *there ? store_->get(keys::kWaiting, Deadline::after(kMeetingCallLimit))
                                          : Result<std::string>(std::string("waiting for a place in the job"));
  if (words.ok()) options_.say(*words + " (the nodes meet at " + place_.address() + ")");
  return words.ok();
}

// The job is over for this node. How it ended is with the newest round.
Error Nodes::sent_home(Error error) {
  if (error.code == Code::kTimeout) error.detail += " (the nodes meet at " + place_.address() + ")";
  if (error.code != Code::kAborted || !store_) return error;
  const auto there = store_->check({keys::kRoster});
  if (!there.ok() || !*there) return error;
  const auto text = store_->get(keys::kRoster, Deadline::after(kMeetingCallLimit));
  const auto roster = text.ok() ? parse_roster(*text) : std::nullopt;
  if (!roster) return error;
  const auto ended = store_->get(keys::end(roster->round), Deadline::after(kMeetingCallLimit));
  if (!ended.ok()) return error;
  news_ = parse_news(*ended);
  if (news_->kind == RoundEnd::Kind::kFault) error.detail += ": " + news_->fault.text;
  return error;
}

Result<Round> Nodes::sit_down(const Assignment& seat) {
  const std::string text = TUTTI_TRY(store_->get(keys::roster(seat.round), Deadline::after(kMeetingCallLimit)));
  const auto roster = parse_roster(text);
  if (!roster || seat.node >= int(roster->nodes.size()) || roster->nodes[std::size_t(seat.node)].id != id_)
    return Error{.code = Code::kMismatch,
                 .detail = "the list of the nodes of round " + std::to_string(seat.round) + " is not understood",
                 .hint = "install the same version of tutti on all nodes"};
  const JoinRequest& first = roster->nodes.front();
  const bool given = first.wanted == 0 && !options_.master_address.empty();
  round_ = Round{.number = roster->round, .node = seat.node, .restarts_used = int(roster->past.size())};
  round_.master_address = given ? options_.master_address : first.note.address;
  round_.master_port = first.port;
  round_.layout = Layout{.counts = {}, .node = seat.node};
  for (const JoinRequest& comer : roster->nodes) {
    const RollNote& note = comer.note;
    if (comer.id == coordinator_->id) coordinator_words_ = words(comer, int(round_.nodes.size()));
    round_.layout.counts.push_back(note.ranks);
    round_.nodes.push_back({.host = note.host, .address = note.address, .ranks = note.ranks, .about = note.about});
  }
  past_ = roster->past;
  if (pulse_) pulse_->set_round(round_.number);
  round_.store = TUTTI_TRY(place_.settle(*roster, store_));
  round_.unix_store = place_.unix_address_of(round_.store);
  watch_ = TUTTI_TRY(KeyWatch::open(*store_, keys::end(round_.number), Deadline::after(kMeetingCallLimit)));
  watch_events();
  return round_;
}

void Nodes::watch_events() {
  events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {watch_->fd(), pulse_ ? pulse_->descriptor() : -1}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fd >= 0) (void)epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

}  // namespace tutti
