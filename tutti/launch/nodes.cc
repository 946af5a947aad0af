// Agents talk to each other through the store, and by heartbeats. One of them is the *coordinator* (rounds/gathering.h
// has its rules): the one that serves the store, or with etcd the first that claims the part. Meeting is:
//
//   reach the store; learn who coordinates; say "I have come" into its inbox; wait for a seat
//
// and whatever breaks on the way (the store, the coordinator) begins it anew, as long as the time to meet lasts. While
// it waits with a coordinator that answers, the coordinator alone decides when that is too long.
//
// What ends a round is one key that exists once: whoever stores it first has decided, and everybody watches it. So two
// failures at the same moment still have one winner, and every node prints the same cause; and whether the job starts
// again is decided there, once.
//
// Whoever does not hear the coordinator any more ends its workers by itself (*fencing*): it cannot know what the others
// decide, and by the time they go on without it, it has stopped.
#include "tutti/launch/nodes.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/rounds/keys.h"
#include "tutti/launch/rounds/own_address.h"
#include "tutti/rendezvous/serving.h"
#include "tutti/store/etcd/etcd_store.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/port_holder.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(3);  // for the store's short calls, while workers are running
constexpr auto kTry = std::chrono::seconds(5);        // to reach the store, before a line about it
constexpr auto kPause = std::chrono::milliseconds(500);
constexpr auto kTurn = std::chrono::seconds(1);
constexpr double kSayEvery = 5;  // seconds

std::string new_id() {
  std::uint64_t number = 0;
  crypto::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::uint64_t number_of(const std::string& id) { return std::strtoull(id.c_str(), nullptr, 16); }

// A port that the program can bind on this node, should it become node 0. Closed again at once.
int free_port(const std::string& host) {
  const auto listener = listen(Address{.host = host});
  return listener.ok() ? int(listener->address.port) : 0;
}

bool is_loopback_text(const Address& address) { return address.host == "localhost" || is_loopback(address); }

// Who has a port of an address of this machine; empty: nobody, or it is no such address.
std::string port_holder_here(const Address& address) {
  return is_loopback_text(address) || is_local_address(address.host) ? port_holder(address) : "";
}

}  // namespace

Nodes::Nodes(NodesOptions options)
    : options_(std::move(options)), id_(new_id()), store_address_(to_string(options_.store)) {
  if (options_.min_nodes == 0) options_.min_nodes = options_.nodes;
}

Nodes::~Nodes() = default;

Limits Nodes::limits() const {
  return {.min = options_.min_nodes,
          .max = options_.nodes,
          .numbered = options_.backend == RendezvousBackend::kStatic,
          .join = options_.timeout,
          .last_call = options_.last_call,
          .lost_after = options_.lost_after,
          .witness = options_.backend == RendezvousBackend::kEtcd};
}

EtcdOptions Nodes::etcd_options() const {
  return {.endpoints = options_.etcd, .prefix = "/tutti/" + options_.credentials.job};
}

Result<std::unique_ptr<Nodes>> Nodes::open(NodesOptions options) {
  std::unique_ptr<Nodes> nodes(new Nodes(std::move(options)));
  TUTTI_TRY(nodes->serve());
  if (!nodes->one_node()) {
    nodes->events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!nodes->events_) return system_error(errno, "could not make an epoll descriptor");
  }
  return nodes;
}

// Elastic: several agents of one host may each find that the meeting place is theirs. The first has the port, and the
// others meet it there; if somebody else has it, the handshake will tell.
Status Nodes::serve() {
  if (server_ || options_.backend == RendezvousBackend::kEtcd) return {};
  Address place = options_.store;
  if (options_.backend == RendezvousBackend::kStatic) {
    if (options_.node != 0) return {};
  } else {
    const auto known = resolve(options_.store);
    const bool ours = known.ok() && std::any_of(known->begin(), known->end(),
                                                [](const Address& a) { return is_local_address(a.host); });
    if (!options_.hosts.value_or(ours)) return {};
    const bool meant = options_.nodes == 1 || is_loopback_text(options_.store);
    place = TUTTI_TRY(serving_addresses(options_.store, "--rdzv-endpoint",
                                        meant ? Identity::OneHost::kUnknown : Identity::OneHost::kNo))
                .front();
    place.port = options_.store.port;
  }
  auto server = StoreServer::start(place, options_.credentials);
  if (!server.ok()) {
    const bool another_may = options_.backend == RendezvousBackend::kElastic && !options_.hosts.value_or(false);
    if (server.error().code == Code::kAddressInUse && another_may) return {};
    return server.status();
  }
  server_ = *std::move(server);
  options_.store = server_->address();
  store_address_ = to_string(options_.store);
  return {};
}

Result<Round> Nodes::meet_alone() {
  store_ = server_->local();
  round_.store = store_address_;
  round_.master_address = options_.master_address;
  round_.master_port = options_.master_port;
  round_.layout = Layout{.counts = {options_.counts.here}};
  round_.nodes = {NodeFacts{.host = options_.host, .ranks = options_.counts.here, .about = options_.about}};
  return round_;
}

Result<Round> Nodes::meet() {
  const int last = news_ ? round_.number : -1;
  if (news_ && news_->again && news_->kind == News::Kind::kFault) past_.push_back(news_->fault);
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
    if (seat && seat->refused) return sent_home(*seat->refused);
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

Status Nodes::reach(Deadline deadline) {
  for (;;) {
    if (!store_) TUTTI_TRY(reach_store(deadline));
    auto found = find_coordinator(deadline);
    if (found.ok()) {
      coordinator_ = *std::move(found);
      break;
    }
    const Code code = found.error().code;
    const bool again = code == Code::kPeerLost || code == Code::kTimeout || code == Code::kUnreachable;
    if (!again || deadline.expired()) return found.status();
    coordination_.reset();
    store_.reset();
  }
  coordinator_words_ = coordinator_->host + " at " + coordinator_->address;
  if (coordination_ || (pulse_ && pulse_->center() == coordinator_->address)) return {};
  const PulseTimes times{.lost_after = options_.lost_after};
  pulse_ = TUTTI_TRY(Pulse::open(coordinator_->address, number_of(id_), options_.credentials, times));
  return {};
}

Status Nodes::connect_store(Deadline deadline) {
  if (options_.backend == RendezvousBackend::kEtcd) {
    store_address_ = options_.etcd;
    store_ = TUTTI_TRY(connect_etcd(etcd_options(), deadline));
    local_address_ = TUTTI_TRY(own_address_toward(options_.etcd));
  } else {
    TUTTI_TRY(serve());
    auto connected = TUTTI_TRY(TcpStore::connect(options_.store, options_.credentials, -1, deadline));
    local_address_ = connected->local_address().host;
    store_address_ = to_string(connected->server());
    store_ = std::move(connected);
  }
  store_->set_call_timeout(kCallLimit);
  return {};
}

Status Nodes::reach_store(Deadline deadline) {
  const bool etcd = options_.backend == RendezvousBackend::kEtcd;
  const std::string host = etcd                                             ? "etcd"
                           : options_.backend == RendezvousBackend::kStatic ? "node 0"
                                                                            : "the node that serves the store";
  for (;;) {
    const Status connected = connect_store(deadline.at_most(kTry));
    if (connected.ok()) return {};
    Error error = connected.error();
    const bool again =
        error.code == Code::kTimeout || error.code == Code::kUnreachable || error.code == Code::kPeerLost;
    if (again && interrupted()) return Error{.code = Code::kAborted, .detail = "interrupted while waiting for " + host};
    if (again && !deadline.expired()) {
      options_.say("waiting for " + host + " at " + store_address_ + " for " + seconds_text(deadline.waited()) +
                   " of " + seconds_text(deadline.limit()));
      if (error.code != Code::kTimeout) poll(nullptr, 0, int(kPause.count()));  // told at once: no tight loop
      continue;
    }
    if (again) {
      error.waited = deadline.waited(), error.limit = deadline.limit();
      if (const std::string holder = etcd ? "" : port_holder_here(options_.store); !holder.empty())
        error.detail += "; that port of this machine is held by " + holder;
      if (!etcd && error.errno_value == 0 && !error.hint.empty()) return error;  // of a name, or of both servers
      error.hint = "is " + host + " started, " +
                   (etcd ? "is that its address (--rdzv-endpoint)"
                         : std::string("with the same ") + (options_.backend == RendezvousBackend::kStatic
                                                                ? "--master-addr and --master-port"
                                                                : "--rdzv-endpoint")) +
                   ", and does a firewall let " + store_address_ + " through?";
    }
    return error;
  }
}

// Who serves the store claims the part before anybody else comes; with etcd whoever is first. Later whoever has missed
// the coordinator and still reaches the store.
Result<Coordinator> Nodes::find_coordinator(Deadline deadline) {
  double next_line = kSayEvery;
  for (;;) {
    std::optional<std::string> text;
    if (TUTTI_TRY(store_->check({keys::kCoordinator})))
      text = TUTTI_TRY(store_->get(keys::kCoordinator, Deadline::after(kCallLimit)));
    const auto known = text ? parse_coordinator(*text) : std::nullopt;
    if (known && coordination_ && known->id == id_) return *known;
    if (known && known->id != id_ && known->id != suspect_) {
      coordination_.reset();
      return *known;
    }
    if (known && known->id != id_ && TUTTI_TRY(still_there(*known))) {
      suspect_.clear();
      continue;
    }
    if (known || server_ || options_.backend == RendezvousBackend::kEtcd) {
      coordination_.reset();
      TUTTI_TRY(claim(text));
      suspect_.clear();
      continue;
    }
    const auto wait = store_->get(keys::kCoordinator, deadline.at_most(kTurn));
    if (!wait.ok() && wait.error().code != Code::kTimeout) return wait.status();
    if (interrupted()) return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
    if (deadline.expired())
      return deadline.error("the store at " + store_address_ + " is there, but nobody coordinates the job",
                            "is this another tutti's store? Give the job its own --rdzv-endpoint");
    if (deadline.waited() < next_line) continue;
    next_line = deadline.waited() + kSayEvery;
    options_.say("waiting for a coordinator of the job at " + store_address_);
  }
}

// A cut that has healed, perhaps: the coordinator is asked once more before somebody takes its part.
Result<bool> Nodes::still_there(const Coordinator& suspect) {
  const PulseTimes times{.lost_after = options_.lost_after};
  pulse_ = TUTTI_TRY(Pulse::open(suspect.address, number_of(id_), options_.credentials, times));
  while (!pulse_->ever_heard() && pulse_->state() == Pulse::State::kWell) poll(nullptr, 0, 20);
  if (pulse_->ever_heard()) return true;
  pulse_.reset();
  return false;
}

Status Nodes::claim(const std::optional<std::string>& before) {
  const std::string address = local_address_.empty() ? options_.store.host : local_address_;
  coordination_ = TUTTI_TRY(Coordination::claim(TUTTI_TRY(store_->clone(Deadline::after(kCallLimit))),
                                                {.limits = limits(),
                                                 .id = id_,
                                                 .host = options_.host,
                                                 .address = address,
                                                 .port = server_ ? server_->address().port : std::uint16_t(0),
                                                 .credentials = options_.credentials,
                                                 .judge = options_.judge,
                                                 .say = options_.say},
                                                before));
  if (coordination_) pulse_.reset();
  return {};
}

Comer Nodes::comer() const {
  const bool ours = options_.node == 0 && options_.master_port > 0;
  return {.id = id_,
          .visit = visit_,
          .wanted = options_.node,
          .min = options_.min_nodes,
          .max = options_.nodes,
          .port = ours ? options_.master_port : free_port(local_address_),
          .last_round = round_.number,
          .note = {.ranks = options_.counts.here,
                   .listed = options_.counts.all,
                   .host = options_.host,
                   .address = local_address_,
                   .about = options_.about}};
}

bool Nodes::interrupted() const {
  pollfd fd{options_.interrupt, POLLIN, 0};
  return options_.interrupt >= 0 && poll(&fd, 1, 0) > 0;
}

// None: the store or the coordinator does not answer any more.
Result<std::optional<Seat>> Nodes::wait_for_seat() {
  const auto lost_store = [&] {
    coordination_.reset();
    store_.reset();
    return std::optional<Seat>();
  };
  const std::string key = keys::seat(id_, visit_);
  if (!store_->push(keys::inbox(coordinator_->term), come_note(comer()))) return lost_store();
  auto watch = KeyWatch::open(*store_, key, Deadline::after(kCallLimit));
  if (!watch.ok()) return lost_store();
  const Clock::time_point begin = now();
  for (double next_line = kSayEvery;;) {
    pollfd fds[] = {
        {(*watch)->fd(), POLLIN, 0}, {options_.interrupt, POLLIN, 0}, {pulse_ ? pulse_->descriptor() : -1, POLLIN, 0}};
    (void)poll(fds, 3, int(std::chrono::milliseconds(kTurn).count()));
    if (fds[1].revents) return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
    if (coordination_ && coordination_->is_over()) {
      coordination_.reset();
      return std::optional<Seat>();
    }
    if (const auto answer = (*watch)->try_read()) {
      if (!answer->ok()) return lost_store();
      (void)store_->remove(key);
      auto seat = parse_seat(**answer);
      if (seat) return seat;
      return Error{.code = Code::kMismatch,
                   .detail = "the coordinator (" + coordinator_words_ + ") says what is not understood",
                   .hint = "install the same version of tutti on all nodes"};
    }
    if (pulse_ && pulse_->state() != Pulse::State::kWell) {
      if (const Status heard = no_heartbeat(); !heard) return heard;
      options_.say("the coordinator (" + coordinator_words_ + ") does not answer any more");
      suspect_ = coordinator_->id;
      pulse_.reset();
      return std::optional<Seat>();
    }
    if (seconds_since(begin) < next_line) continue;
    next_line = seconds_since(begin) + kSayEvery;
    const auto there = store_->check({keys::kWaiting});
    const auto words = there.ok() && *there ? store_->get(keys::kWaiting, Deadline::after(kCallLimit))
                                            : Result<std::string>(std::string("waiting for a place in the job"));
    if (words.ok()) options_.say(*words + " (the nodes meet at " + store_address_ + ")");
  }
}

// The store answers and heartbeats never did: waiting does not heal it.
Status Nodes::no_heartbeat() const {
  if (pulse_->ever_heard()) return {};
  const bool etcd = options_.backend == RendezvousBackend::kEtcd;
  if (etcd && pulse_->state() == Pulse::State::kGone) return {};  // etcd still knows a coordinator that has died
  const auto answered = store_->check({keys::kCoordinator});
  if (!answered.ok()) return {};
  return Error{.code = Code::kUnreachable,
               .detail = "heartbeats (UDP) are not answered by the coordinator, " + coordinator_->host + " at " +
                         coordinator_->address + ", though the store at " + store_address_ + " (TCP) is",
               .hint = "a firewall lets TCP through and UDP not: open UDP port " +
                       coordinator_->address.substr(coordinator_->address.rfind(':') + 1) + " on " +
                       coordinator_->host +
                       (etcd ? "; if that agent died without a word, etcd forgets it within a minute" : "")};
}

// The job is over for this node. How it ended is with the newest round.
Error Nodes::sent_home(Error error) {
  if (error.code == Code::kTimeout) error.detail += " (the nodes meet at " + store_address_ + ")";
  if (error.code != Code::kAborted || !store_) return error;
  const auto there = store_->check({keys::kRoster});
  if (!there.ok() || !*there) return error;
  const auto text = store_->get(keys::kRoster, Deadline::after(kCallLimit));
  const auto roster = text.ok() ? parse_roster(*text) : std::nullopt;
  if (!roster) return error;
  const auto ended = store_->get(keys::end(roster->round), Deadline::after(kCallLimit));
  if (!ended.ok()) return error;
  news_ = parse_news(*ended);
  if (news_->kind == News::Kind::kFault) error.detail += ": " + news_->fault.text;
  return error;
}

Result<Round> Nodes::sit_down(const Seat& seat) {
  const std::string text = TUTTI_TRY(store_->get(keys::roster(seat.round), Deadline::after(kCallLimit)));
  const auto roster = parse_roster(text);
  if (!roster || seat.node >= int(roster->nodes.size()) || roster->nodes[std::size_t(seat.node)].id != id_)
    return Error{.code = Code::kMismatch,
                 .detail = "the list of the nodes of round " + std::to_string(seat.round) + " is not understood",
                 .hint = "install the same version of tutti on all nodes"};
  const Comer& first = roster->nodes.front();
  const bool given = first.wanted == 0 && !options_.master_address.empty();
  round_ = Round{.number = roster->round, .node = seat.node, .restarts_used = int(roster->past.size())};
  round_.master_address = given ? options_.master_address : first.note.address;
  round_.master_port = first.port;
  round_.layout = Layout{.counts = {}, .node = seat.node};
  for (const Comer& comer : roster->nodes) {
    const RollNote& note = comer.note;
    if (comer.id == coordinator_->id) coordinator_words_ = words(comer, int(round_.nodes.size()));
    round_.layout.counts.push_back(note.ranks);
    round_.nodes.push_back({.host = note.host, .address = note.address, .ranks = note.ranks, .about = note.about});
  }
  past_ = roster->past;
  if (pulse_) pulse_->set_round(round_.number);
  round_.store = TUTTI_TRY(store_of_ranks(round_));
  watch_ = TUTTI_TRY(KeyWatch::open(*store_, keys::end(round_.number), Deadline::after(kCallLimit)));
  watch_events();
  return round_;
}

// Ranks speak our own protocol: where etcd is the nodes' store, node 0 serves another one for the ranks of each round.
Result<std::string> Nodes::store_of_ranks(const Round& round) {
  if (options_.backend != RendezvousBackend::kEtcd) return store_address_;
  const std::string key = keys::store(round.number);
  round_server_.reset();  // until now others may have read there what ended the last round
  if (round.node == 0) {
    round_server_ = TUTTI_TRY(StoreServer::start({.host = local_address_}, options_.credentials));
    TUTTI_TRY(store_->set(key, to_string(round_server_->address())));
  }
  return store_->get(key, Deadline::after(options_.timeout));
}

void Nodes::watch_events() {
  events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {watch_->fd(), pulse_ ? pulse_->descriptor() : -1}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fd >= 0) (void)epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

void Nodes::update() {
  if (one_node() || news_ || !watch_) return;
  if (const auto answer = watch_->try_read()) {
    if (!answer->ok()) {
      store_lost_ = true;
      return lose_touch("lost the store of " + (coordination_ ? "the job" : coordinator_words_) + ": " +
                        to_string(answer->error()));
    }
    return end_with(parse_news(**answer));
  }
  if (coordination_ && coordination_->is_over()) {
    coordination_.reset();
    return lose_touch("does not coordinate the job any more");
  }
  if (!pulse_) return;
  switch (pulse_->state()) {
    case Pulse::State::kWell:
      return;
    case Pulse::State::kOut:
      return lose_touch("was taken for lost by the coordinator, " + coordinator_words_);
    case Pulse::State::kSilent:
      if (const Status heard = no_heartbeat(); !heard && !fixed()) {
        const std::string text = "node " + std::to_string(round_.node) + " (" + options_.host + "): ";
        watch_.reset();
        return end_with(
            {.kind = News::Kind::kFault, .fault = {.text = text + to_string(heard.error()), .code = kExitRendezvous}});
      }
      suspect_ = coordinator_->id;
      return lose_touch("lost touch with the coordinator, " + coordinator_words_ + ": no heartbeat has come back for " +
                        seconds_text(to_seconds(pulse_->silence())));
    case Pulse::State::kGone:
      suspect_ = coordinator_->id;
      return lose_touch("lost touch with the coordinator, " + coordinator_words_ + ": its agent has ended");
  }
}

// This node cannot know what the others do, so its workers end. A job that may change its size looks for the others
// again; one of fixed size is over.
void Nodes::lose_touch(const std::string& how) {
  const std::string text = "node " + std::to_string(round_.node) + " (" + options_.host + ") " + how;
  if (pulse_ && !store_lost_ && pulse_->state() != Pulse::State::kOut) pulse_.reset();
  if (store_lost_) {
    coordination_.reset();
    store_.reset();
  }
  watch_.reset();
  if (fixed()) return end_with({.kind = News::Kind::kFault, .fault = {.text = text, .code = kExitRendezvous}});
  end_with({.kind = News::Kind::kMembership, .again = true, .text = text});
}

News Nodes::publish(const Fault& fault) {
  News mine{.kind = News::Kind::kFault, .mine = true, .fault = fault};
  if (news_) return *news_;
  if (options_.judge) mine.verdict = options_.judge(past_, fault);
  mine.again = mine.verdict.restart;
  if (!store_ || store_lost_) mine.again = mine.verdict.restart = false;
  news_ = mine;
  if (!store_ || store_lost_) return mine;
  if (!one_node()) {
    const auto ended = store_->compare_set(keys::end(round_.number), std::nullopt, encode(mine));
    if (!ended.ok()) {  // what happened here is still the best that this node knows
      news_->again = news_->verdict.restart = false;
      return *news_;
    }
    if (!ended->stored) {
      end_with(parse_news(ended->value.value_or("another failure")));
      return *news_;
    }
  }
  (void)store_->set(keys::fault(round_.number), fault.text);
  return mine;
}

void Nodes::done() {
  if (news_ || done_) return;
  done_ = true;
  if (one_node()) return end_with({});
  const auto count = store_->add(keys::done(round_.number), 1);
  if (!count.ok()) {
    store_lost_ = true;
    return lose_touch("lost the store of " + coordinator_words_ + ": " + to_string(count.error()));
  }
  if (*count == round_.layout.nodes())
    (void)store_->compare_set(keys::end(round_.number), std::nullopt, encode(News()));
}

bool Nodes::dispensable() const {
  return !server_ && options_.min_nodes < options_.nodes && round_.layout.nodes() > options_.min_nodes;
}

bool Nodes::all_have_saved() {
  if (!leaving_) leaving_ = store_->add(keys::leaving(round_.number), 1).ok();
  const auto done = store_->add(keys::done(round_.number), 0), leaving = store_->add(keys::leaving(round_.number), 0);
  return done.ok() && leaving.ok() && *done + *leaving >= round_.layout.nodes();
}

void Nodes::leave(Duration patience) {
  if (one_node() || !store_ || store_lost_ || !coordinator_) return;
  const bool others_go_on = !server_ && (!news_ || news_->again);
  if (!coordination_) {
    (void)store_->push(keys::inbox(coordinator_->term), leave_note(id_));
  } else if (others_go_on) {  // and one of them coordinates
    const News news{.kind = News::Kind::kMembership,
                    .again = true,
                    .text = "node " + std::to_string(round_.node) + " (" + options_.host + ") has left"};
    if (!news_) (void)store_->compare_set(keys::end(round_.number), std::nullopt, encode(news));
    coordination_.reset();
  } else {
    const bool alone = coordination_->wait_for_others(Deadline::after(patience));
    coordination_.reset();
    if (alone && options_.backend == RendezvousBackend::kEtcd)
      (void)forget_etcd_job(etcd_options(), Deadline::after(kCallLimit));  // the next job of this name begins anew
  }
  pulse_.reset();
}

}  // namespace tutti
