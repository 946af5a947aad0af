// What ends a round is one key that exists once: the agent that stores it first has decided, and all watch it. So two
// failures at the same moment still have one winner, every node prints the same cause, and whether the job starts again
// is decided there, once.
//
// An agent that does not hear the coordinator any more ends its workers by itself (*fencing*): it cannot know what the
// others decide, and by the time they continue without it, it has stopped.
#include "tutti/launch/membership/member.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/membership/addresses.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/crypto.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kTry = std::chrono::seconds(5);  // to reach the store, before a line about it
constexpr auto kPause = std::chrono::milliseconds(500);

std::string new_id() {
  std::uint64_t number = 0;
  crypto::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return id_of(number);
}

bool may_pass(const Error& error) {
  return error.code == Code::kTimeout || error.code == Code::kUnreachable || error.code == Code::kPeerLost;
}

Result<Fd> new_epoll() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error(errno, "could not make an epoll descriptor");
  return epoll;
}

}  // namespace

std::string unix_address_of(StoreServer& server, const NodesOptions& options) {
  const auto address = server.unix_address();
  if (address.ok()) return to_string(*address);
  options.say("the ranks of this node reach the store by TCP alone: " + to_string(address.error()));
  return {};
}

Limits Member::limits_of(const NodesOptions& options) {
  return {.min = options.min_nodes,
          .max = options.nodes,
          .join = options.timeout,
          .last_call = options.last_call,
          .lost_after = options.lost_after};
}

Member::Member(NodesOptions options, Limits limits)
    : options_(std::move(options)), limits_(limits), id_(new_id()), events_(new_epoll().or_throw()) {}

Member::~Member() = default;

// ---- joining ----

Result<Round> Member::join() {
  const int last = end_ ? round_.number : -1;
  if (end_ && end_->again && end_->kind == RoundEnd::Kind::kFault) past_.push_back(end_->fault);
  round_ = Round{.number = last, .restarts_used = int(past_.size())};
  end_.reset();
  done_ = leaving_ = store_lost_ = false;
  watch_.reset();
  if (heartbeat_) heartbeat_->set_round(-1);
  ++visit_;
  for (Deadline deadline = Deadline::after(options_.timeout);;) {
    TUTTI_TRY(reach(deadline));
    const auto assignment = TUTTI_TRY(wait_for_assignment());
    if (assignment && assignment->refused) {
      if (own_ && serves_store()) own_->wait_for_readers(Deadline::after(kCallLimit));  // the others read it here
      Error error = sent_home(*assignment->refused);
      // Now the node that serves the store may go; if this fails, it does so some seconds later.
      if (store_) (void)store_->remove(keys::assignment(id_, visit_));
      return error;
    }
    if (assignment) {
      auto round = begin_round(*assignment);
      if (round.ok() || round.error().code == Code::kMismatch) return round;
      options_.say("round " + std::to_string(assignment->round) +
                   " ended before this node could take part: " + to_string(round.error()));
      ++visit_;
    }
    deadline = Deadline::after(options_.timeout);  // all was well until now
  }
}

void Member::drop_store() {
  store_.reset();
  if (!serves_store()) own_.reset();
}

Status Member::reach(Deadline deadline) {
  for (;;) {
    TUTTI_TRY(settle_doubt(deadline));
    if (!store_) TUTTI_TRY(reach_store(deadline));
    if (const auto elsewhere = moved_to(store_.get())) {
      own_.reset();
      store_.reset();
      TUTTI_TRY(follow_redirect(*elsewhere));
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
  coordinator_text_ = coordinator_->host + " at " + coordinator_->address;
  if (own_ || (heartbeat_ && heartbeat_->center() == coordinator_->address)) return {};
  return open_heartbeat(*coordinator_);
}

Status Member::reach_store(Deadline deadline) {
  for (double next_line = 0;;) {
    auto connected = connect(deadline.at_most(kTry));
    if (connected.ok()) {
      store_ = *std::move(connected);
      return {};
    }
    if (heartbeat_ && heartbeat_->lost()) lose_coordinator();
    if (moved_to(nullptr)) return {};
    Error error = connected.error();
    if (!may_pass(error)) return error;
    if (deadline.expired()) {
      error.waited = deadline.waited(), error.limit = deadline.limit();
      return explain_unreachable(std::move(error));
    }
    if (deadline.waited() >= next_line) {
      next_line = deadline.waited() + (has_failover() ? kSayEvery : 0);
      options_.say("waiting for " + server_name() + " at " + address() + " for " + seconds_text(deadline.waited()) +
                   " of " + seconds_text(deadline.limit()));
    }
    TUTTI_TRY(pause(error.code == Code::kTimeout ? Duration(0) : kPause));  // refused at once: no tight loop
  }
}

Result<CoordinatorAddress> Member::find_coordinator(Deadline deadline) {
  double next_line = deadline.waited() + kSayEvery;
  for (;;) {
    std::optional<std::string> text;
    if (TUTTI_TRY(store_->check({keys::kCoordinator})))
      text = TUTTI_TRY(store_->get(keys::kCoordinator, Deadline::after(kCallLimit)));
    const auto known = text ? parse_coordinator(*text) : std::nullopt;
    const bool ours = known && known->id == id_;
    if (ours && own_) return *known;
    switch (TUTTI_TRY(choose(ours ? std::nullopt : known, deadline, next_line))) {
      case Choice::kFollow:
        suspect_.clear();
        own_.reset();
        return *known;
      case Choice::kClaim:
        own_.reset();
        TUTTI_TRY(claim(text));
        suspect_.clear();
        break;
      case Choice::kLookAgain:
        break;
    }
  }
}

Status Member::claim(const std::optional<std::string>& before) {
  const auto last = before ? parse_coordinator(*before) : std::nullopt;
  const std::string local = local_address();
  CoordinatorOptions options{.limits = limits_,
                             .id = id_,
                             .host = options_.host,
                             .address = local.empty() ? options_.store.host : local,
                             .credentials = options_.credentials,
                             .judge = options_.judge,
                             .vote = {},
                             .predecessor = {},
                             .say = options_.say};
  auto store = TUTTI_TRY(prepare_claim(options, last));
  own_ = TUTTI_TRY(Coordinator::claim(std::move(store), std::move(options), before));
  if (own_) heartbeat_.reset();
  return {};
}

Status Member::open_heartbeat(const CoordinatorAddress& coordinator) {
  heartbeat_ = TUTTI_TRY(Heartbeat::open(coordinator.address, number_of(id_), options_.credentials,
                                         {.lost_after = options_.lost_after}, voter_for(coordinator)));
  return {};
}

Result<bool> Member::answers(const CoordinatorAddress& suspect) {
  TUTTI_TRY(open_heartbeat(suspect));
  if (TUTTI_TRY(hears())) return true;
  heartbeat_.reset();
  return false;
}

Result<bool> Member::hears() const {
  const auto begin = now();
  const auto heard = [&] { return heartbeat_->ever_heard() && heartbeat_->silence() < now() - begin; };
  while (!heard() && heartbeat_->state() == HeartbeatState::kWell) TUTTI_TRY(pause(kShortPause));
  return heard();
}

JoinRequest Member::request() const {
  const bool given = options_.node == 0 && options_.master_port > 0;
  const auto free = given ? Result<int>(options_.master_port) : free_port(local_address());  // should it be node 0
  return {.id = id_,
          .visit = visit_,
          .wanted = options_.node,
          .min = options_.min_nodes,
          .max = options_.nodes,
          .failover = limits_.failover,
          .port = free.ok() ? *free : 0,
          .last_round = round_.number,
          .note = {.ranks = options_.counts.here,
                   .listed = options_.counts.all,
                   .host = options_.host,
                   .address = local_address(),
                   .about = options_.about,
                   .pid = int(getpid())}};
}

Status Member::send_request() { return store_->push(keys::inbox(coordinator_->term), join_note(request())); }

Status Member::pause(Duration length) const {
  pollfd fd{options_.interrupt, POLLIN, 0};
  const int limit = int(std::chrono::ceil<std::chrono::milliseconds>(length).count());
  if (poll(&fd, 1, limit) <= 0) return {};
  return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
}

// None: the store or the coordinator does not answer any more.
Result<std::optional<Assignment>> Member::wait_for_assignment() {
  const auto lost_store = [&] {
    drop_store();
    return std::optional<Assignment>();
  };
  const std::string key = keys::assignment(id_, visit_);
  learn_store();
  if (TUTTI_TRY(reaches_coordinator()) && !send_request()) return lost_store();
  auto watch = KeyWatch::open(*store_, key, Deadline::after(kCallLimit));
  if (!watch.ok()) return lost_store();
  const Clock::time_point begin = now();
  for (double next_line = kSayEvery;;) {
    pollfd fds[] = {
        {(*watch)->fd(), POLLIN, 0}, {options_.interrupt, POLLIN, 0}, {heartbeat_ ? heartbeat_->fd() : -1, POLLIN, 0}};
    (void)poll(fds, 3, int(std::chrono::milliseconds(kMemberTurn).count()));
    if (fds[1].revents) return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
    if (own_ && own_->is_over()) {
      own_.reset();
      return std::optional<Assignment>();
    }
    if (is_cut_off()) return lost_store();
    if (serves_store() && moved_to(nullptr)) return std::optional<Assignment>();
    if (const auto answer = (*watch)->try_read()) {
      if (!answer->ok()) return lost_store();
      return read_assignment(**answer, key);
    }
    if (heartbeat_ && heartbeat_->state() != HeartbeatState::kWell) {
      if (const Status heard = check_heartbeat(); !heard) return heard;
      options_.say("the coordinator (" + coordinator_text_ + ") no longer answers");
      lose_coordinator();
      return std::optional<Assignment>();
    }
    if (!own_ && has_failover() && !same_coordinator()) return std::optional<Assignment>();
    if (seconds_since(begin) < next_line) continue;
    next_line = seconds_since(begin) + kSayEvery;
    if (!say_what_is_missing()) return lost_store();
  }
}

// Another node may serve the store by now, and coordinate.
bool Member::same_coordinator() {
  const auto text = store_->get(keys::kCoordinator, Deadline::after(kCallLimit));
  if (!text.ok()) return false;
  const auto known = parse_coordinator(*text);
  return known && known->term == coordinator_->term;
}

Result<std::optional<Assignment>> Member::read_assignment(const std::string& answer, const std::string& key) {
  auto assignment = parse_assignment(answer);
  if (!assignment || !assignment->refused) (void)store_->remove(key);  // nobody reads it again; it only takes room
  if (assignment) return assignment;
  return Error{.code = Code::kMismatch,
               .detail = "the coordinator (" + coordinator_text_ + ") sent an answer that cannot be parsed",
               .hint = "install the same version of tutti on all nodes"};
}

// Also sends the request again: if the store changed hands, the first may have been taken out of the inbox and lost.
// False: the store does not answer.
bool Member::say_what_is_missing() {
  learn_store();
  if (!send_request()) return false;
  const auto there = store_->check({keys::kWaiting});
  const auto text = there.ok() && *there ? store_->get(keys::kWaiting, Deadline::after(kCallLimit))
                                         : Result<std::string>(std::string("waiting for a place in the job"));
  if (text.ok()) options_.say(*text + " (the nodes meet at " + address() + ")");
  return text.ok();
}

// The job is over for this node. The newest round says how it ended.
Error Member::sent_home(Error error) {
  if (error.code == Code::kTimeout) error.detail += " (the nodes meet at " + address() + ")";
  if (error.code != Code::kAborted || !store_) return error;
  const auto there = store_->check({keys::kParticipants});
  if (!there.ok() || !*there) return error;
  const auto text = store_->get(keys::kParticipants, Deadline::after(kCallLimit));
  const auto participants = text.ok() ? parse_participants(*text) : std::nullopt;
  if (!participants) return error;
  const auto ended = store_->get(keys::end(participants->round), Deadline::after(kCallLimit));
  if (!ended.ok()) return error;
  end_ = parse_round_end(*ended);
  if (end_->kind == RoundEnd::Kind::kFault) error.detail += ": " + end_->fault.text;
  return error;
}

Result<Round> Member::begin_round(const Assignment& assignment) {
  const std::string text = TUTTI_TRY(store_->get(keys::participants(assignment.round), Deadline::after(kCallLimit)));
  const auto participants = parse_participants(text);
  if (!participants || assignment.node >= int(participants->nodes.size()) ||
      participants->nodes[std::size_t(assignment.node)].id != id_)
    return Error{.code = Code::kMismatch,
                 .detail = "the list of the nodes of round " + std::to_string(assignment.round) + " cannot be parsed",
                 .hint = "install the same version of tutti on all nodes"};
  const JoinRequest& first = participants->nodes.front();
  const bool given = first.wanted == 0 && !options_.master_address.empty();
  round_ =
      Round{.number = participants->round, .node = assignment.node, .restarts_used = int(participants->past.size())};
  round_.master_address = given ? options_.master_address : first.note.address;
  round_.master_port = first.port;
  round_.layout = Layout{.counts = {}, .node = assignment.node};
  for (const JoinRequest& node : participants->nodes) {
    const NodeNote& note = node.note;
    if (node.id == coordinator_->id) coordinator_text_ = describe(node, int(round_.nodes.size()));
    round_.layout.counts.push_back(note.ranks);
    round_.nodes.push_back({.host = note.host, .address = note.address, .ranks = note.ranks, .about = note.about});
  }
  past_ = participants->past;
  if (heartbeat_) heartbeat_->set_round(round_.number);
  TUTTI_TRY(settle_store(*participants, round_));
  watch_ = TUTTI_TRY(KeyWatch::open(*store_, keys::end(round_.number), Deadline::after(kCallLimit)));
  watch_events();
  return round_;
}

// The kernel has removed the descriptors of the last round, which are closed.
void Member::watch_events() {
  for (const int fd : {watch_->fd(), heartbeat_ ? heartbeat_->fd() : -1}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fd >= 0) (void)epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

// ---- a round ----

const std::optional<RoundEnd>& Member::next_event() {
  if (!end_ && watch_) look_for_end();
  return end_;
}

void Member::look_for_end() {
  if (const auto answer = watch_->try_read()) {
    if (answer->ok()) return ended_elsewhere(parse_round_end(**answer));
    return lose_store("lost the store of " + (own_ ? "the job" : coordinator_text_) + ": " +
                      to_string(answer->error()));
  }
  if (own_ && own_->is_over()) {
    own_.reset();
    return lose_touch("no longer coordinates the job");
  }
  if (is_cut_off())
    return lose_touch("receives heartbeats of fewer than half of the nodes, and a minority never continues");
  if (const auto elsewhere = serves_store() ? moved_to(nullptr) : std::nullopt)
    return lose_touch("began a job of its own, which continues at " + *elsewhere);
  if (!heartbeat_) return;
  switch (heartbeat_->state()) {
    case HeartbeatState::kWell:
      return;
    case HeartbeatState::kOut:
      return lose_touch("was counted as lost by the coordinator, " + coordinator_text_);
    case HeartbeatState::kSilent:
      if (const Status heard = check_heartbeat(); !heard && !limits_.fixed()) {
        watch_.reset();
        return end_with({.kind = RoundEnd::Kind::kFault,
                         .fault = {.text = this_node() + ": " + to_string(heard.error()), .code = kExitRendezvous}});
      }
      return lose_touch("lost contact with the coordinator, " + coordinator_text_ + ": no heartbeat was answered for " +
                        seconds_text(to_seconds(heartbeat_->silence())));
    case HeartbeatState::kGone:
      return lose_touch("lost contact with the coordinator, " + coordinator_text_ + ": its agent has ended");
  }
}

// An error if the store answers and heartbeats never did: waiting does not heal that. A coordinator that is dead for
// certain is waited for, whatever its secret was: it was of an earlier run.
Status Member::check_heartbeat() const {
  if (heartbeat_->ever_heard()) return {};
  const std::string who = "the coordinator, " + coordinator_->host + " at " + coordinator_->address;
  const bool proven = !coordinator_->proof.empty();
  const bool gone = heartbeat_->state() == HeartbeatState::kGone;
  if (proven && !gone && coordinator_->proof != proof_of(options_.credentials, *coordinator_)) {
    const transport::Secret& ours = options_.credentials.secret;
    return Error{
        .code = Code::kRefused,
        .detail = who + (ours.is_none() ? ", holds a secret, and this node was started without one (--insecure)"
                                        : ", has another secret than this node, or none (ours has fingerprint " +
                                              ours.fingerprint() + ")"),
        .hint =
            "give all nodes the same TUTTI_SECRET or --secret-file; or is there another job of the same name? "
            "Give each its own --rdzv-id" +
            lost_coordinator_hint()};
  }
  if (may_name_a_lost_coordinator() && (gone || round_.number >= 0)) return {};
  const auto answered = store_->check({keys::kCoordinator});
  if (!answered.ok()) return {};
  return Error{
      .code = Code::kUnreachable,
      .detail = "heartbeats (UDP) are not answered by " + who + ", though the store at " + address() + " (TCP) is",
      .hint = "a firewall lets TCP through and UDP not: open UDP port " +
              coordinator_->address.substr(coordinator_->address.rfind(':') + 1) + " on " + coordinator_->host +
              (proven ? "" : "; or the nodes were given different secrets (TUTTI_SECRET, --secret-file)") +
              lost_coordinator_hint()};
}

void Member::lose_coordinator() {
  suspect_ = coordinator_->id;
  suspect_ended_ = heartbeat_->state() == HeartbeatState::kGone;
  on_coordinator_lost(suspect_ended_);
  heartbeat_.reset();
}

// This node cannot know what the others do, so its workers end. A job that may change its size looks for the others
// again; one of fixed size is over.
void Member::lose_touch(const std::string& how) {
  const std::string text = this_node() + " " + how;
  if (heartbeat_ && heartbeat_->lost()) lose_coordinator();
  if (store_lost_) drop_store();
  watch_.reset();
  if (limits_.fixed())
    return end_with({.kind = RoundEnd::Kind::kFault, .fault = {.text = text, .code = kExitRendezvous}});
  end_with({.kind = RoundEnd::Kind::kMembership, .again = true, .text = text});
}

void Member::lose_store(const std::string& how) {
  store_lost_ = true;
  lose_touch(how);
}

void Member::ended_elsewhere(RoundEnd end) {
  on_ended_elsewhere(end);
  end_with(std::move(end));
}

RoundEnd Member::report(const Fault& fault) {
  RoundEnd mine{.kind = RoundEnd::Kind::kFault, .mine = true, .fault = fault};
  if (next_event()) return *end_;  // it was first, but not noticed yet, as when this process was stopped for a while
  if (options_.judge) mine.verdict = options_.judge(past_, fault);
  mine.again = mine.verdict.restart;
  const auto ends_here = [&] {  // this fault is still the best that is known
    mine.again = mine.verdict.restart = false;
    end_ = mine;
    return mine;
  };
  if (!store_ || store_lost_) return ends_here();
  const auto ended = store_->compare_set(keys::end(round_.number), std::nullopt, encode(mine));
  if (!ended.ok() && has_failover() && !fault.final) {  // the round has ended with the node that served the store
    lose_store("lost the store of " + coordinator_text_ + " (" + to_string(ended.error()) +
               ") while it reported: " + fault.text);
    return *end_;
  }
  if (!ended.ok()) return ends_here();
  if (!ended->stored) {
    ended_elsewhere(parse_round_end(ended->value.value_or("another failure")));
    return *end_;
  }
  end_ = mine;
  inform_ranks(fault.text);
  return mine;
}

void Member::finished() {
  if (end_ || done_) return;
  done_ = true;
  const auto count = store_->add(keys::done(round_.number), 1);
  if (!count.ok()) return lose_store("lost the store of " + coordinator_text_ + ": " + to_string(count.error()));
  if (*count != round_.layout.nodes()) return;
  const auto ended = store_->compare_set(keys::end(round_.number), std::nullopt, encode(RoundEnd()));
  if (!ended.ok())
    lose_store("lost the store of " + coordinator_text_ + " as all ranks had ended: " + to_string(ended.error()));
}

bool Member::dispensable() {
  return (!serves_store() || has_failover()) && options_.min_nodes < options_.nodes &&
         round_.layout.nodes() > options_.min_nodes;
}

bool Member::all_have_saved() {
  if (!store_) return true;  // then the others continue without this node
  if (!leaving_) leaving_ = store_->add(keys::leaving(round_.number), 1).ok();
  const auto done = store_->add(keys::done(round_.number), 0), leaving = store_->add(keys::leaving(round_.number), 0);
  return done.ok() && leaving.ok() && *done + *leaving >= round_.layout.nodes();
}

void Member::leave(Duration patience) {
  if (!store_ || store_lost_ || !coordinator_) return;
  const bool others_continue = (!serves_store() || has_failover()) && (!end_ || end_->again);
  // If a note does not arrive, the others miss this node's heartbeats, or its store, some seconds later.
  if (!own_) {
    (void)store_->push(keys::inbox(coordinator_->term), leave_note(id_));
  } else if (others_continue) {  // and one of them coordinates
    const RoundEnd end{
        .kind = RoundEnd::Kind::kMembership, .again = true, .text = this_node() + " has left", .gentle = true};
    if (!end_) (void)store_->compare_set(keys::end(round_.number), std::nullopt, encode(end));
    own_.reset();
  } else {
    const bool alone = own_->wait_for_others(Deadline::after(patience));
    own_.reset();
    if (alone) on_last_to_leave();
  }
  heartbeat_.reset();
}

}  // namespace tutti::launch::membership
