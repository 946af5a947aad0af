// A round, from the agent's side: hearing what ends it, and telling of what happens here. How the agents come together
// is in nodes_meeting.cc.
//
// What ends a round is one key that exists once: whoever stores it first has decided, and everybody watches it. So two
// failures at the same moment still have one winner, and every node prints the same cause; and whether the job starts
// again is decided there, once.
//
// Whoever does not hear the coordinator any more ends its workers by itself (*fencing*): it cannot know what the others
// decide, and by the time they go on without it, it has stopped.
#include "tutti/launch/nodes.h"

#include <sys/epoll.h>

#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/store/etcd/etcd_store.h"
#include "tutti/transport/crypto.h"

namespace tutti {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(3);  // for the store's short calls, while workers are running
constexpr const char* kForgets = "; if that agent died without a word, etcd forgets it within a minute";

std::string new_id() {
  std::uint64_t number = 0;
  crypto::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return id_of(number);
}

NodesOptions completed(NodesOptions options) {
  if (options.min_nodes == 0) options.min_nodes = options.nodes;
  return options;
}

}  // namespace

Nodes::Nodes(NodesOptions options) : options_(completed(std::move(options))), id_(new_id()), place_(options_, id_) {}

Nodes::~Nodes() = default;

Result<std::unique_ptr<Nodes>> Nodes::open(NodesOptions options) {
  std::unique_ptr<Nodes> nodes(new Nodes(std::move(options)));
  TUTTI_TRY(nodes->place_.serve());
  if (!nodes->one_node()) {
    nodes->events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!nodes->events_) return system_error(errno, "could not make an epoll descriptor");
  }
  return nodes;
}

void Nodes::update() {
  if (one_node() || news_ || !watch_) return;
  if (const auto answer = watch_->try_read()) {
    if (answer->ok()) return hear(parse_news(**answer));
    store_lost_ = true;
    return lose_touch("lost the store of " + (coordination_ ? "the job" : coordinator_words_) + ": " +
                      to_string(answer->error()));
  }
  if (coordination_ && coordination_->is_over()) {
    coordination_.reset();
    return lose_touch("does not coordinate the job any more");
  }
  if (coordination_ && coordination_->is_cut_off())
    return lose_touch("hears fewer than half of the nodes, and a minority never goes on");
  if (const auto elsewhere = place_.server() ? place_.signpost(nullptr) : std::nullopt)
    return lose_touch("began a job of its own, which goes on at " + *elsewhere);
  if (!pulse_) return;
  switch (pulse_->state()) {
    case Heartbeat::State::kWell:
      return;
    case Heartbeat::State::kOut:
      return lose_touch("was taken for lost by the coordinator, " + coordinator_words_);
    case Heartbeat::State::kSilent:
      if (const Status heard = no_heartbeat(); !heard && !fixed()) {
        watch_.reset();
        return end_with({.kind = RoundEnd::Kind::kFault,
                         .fault = {.text = this_node() + ": " + to_string(heard.error()), .code = kExitRendezvous}});
      }
      return lose_touch("lost touch with the coordinator, " + coordinator_words_ + ": no heartbeat has come back for " +
                        seconds_text(to_seconds(pulse_->silence())));
    case Heartbeat::State::kGone:
      return lose_touch("lost touch with the coordinator, " + coordinator_words_ + ": its agent has ended");
  }
}

// The store answers and heartbeats never did: waiting does not heal it. An agent that is dead for certain is followed,
// whatever its secret was: it was of an earlier run.
Status Nodes::no_heartbeat() const {
  if (pulse_->ever_heard()) return {};
  const bool etcd = uses_etcd(options_);
  const std::string who = "the coordinator, " + coordinator_->host + " at " + coordinator_->address;
  const bool proven = !coordinator_->proof.empty();
  if (proven && pulse_->state() != Heartbeat::State::kGone &&
      coordinator_->proof != proof_of(options_.credentials, *coordinator_)) {
    const Secret& ours = options_.credentials.secret;
    return Error{
        .code = Code::kRefused,
        .detail = who + (ours.is_none() ? ", holds a secret, and this node was started without one (--insecure)"
                                        : ", has another secret than this node, or none (ours has fingerprint " +
                                              ours.fingerprint() + ")"),
        .hint = "give all nodes the same TUTTI_SECRET or --secret-file; or is there another job of the same " +
                std::string("name? Give each its own --rdzv-id") + (etcd ? kForgets : "")};
  }
  // etcd still knows a coordinator that has died, or one on the other side of a cut that may heal.
  if (etcd && (pulse_->state() == Heartbeat::State::kGone || round_.number >= 0)) return {};
  const auto answered = store_->check({keys::kCoordinator});
  if (!answered.ok()) return {};
  return Error{
      .code = Code::kUnreachable,
      .detail =
          "heartbeats (UDP) are not answered by " + who + ", though the store at " + place_.address() + " (TCP) is",
      .hint = "a firewall lets TCP through and UDP not: open UDP port " +
              coordinator_->address.substr(coordinator_->address.rfind(':') + 1) + " on " + coordinator_->host +
              (proven ? "" : "; or the nodes were given different secrets (TUTTI_SECRET, --secret-file)") +
              (etcd ? kForgets : "")};
}

// Its heartbeats do not come back: from now on this node is for the successor.
void Nodes::lose_coordinator() {
  suspect_ = coordinator_->id;
  suspect_ended_ = pulse_->state() == Heartbeat::State::kGone;
  if (uses_etcd(options_) && !suspect_ended_) tell_witness();
  place_.primary_is_lost(pulse_->state() == Heartbeat::State::kGone);
  pulse_.reset();
  if (place_.has_successor() && !place_.server()) store_.reset();  // a call there would only wait
}

// At once, and beside what ends the workers: a coordinator that hears of nobody for some seconds takes this node for
// dead, and goes on though it may be the lesser part.
void Nodes::tell_witness() {
  const auto tell = [etcd = place_.etcd_options(), key = keys::misses(coordinator_->term, id_)] {
    const auto store = connect_etcd(etcd, Deadline::after(kCallLimit));
    if (!store.ok()) return;  // then it is cut off from etcd too, and can take part in nothing
    (*store)->set_call_timeout(kCallLimit);
    (void)(*store)->set(key, "");  // as above
  };
  auto told = start_async(tell);
  if (!told.ok()) return tell();
  told_witness_ = *std::move(told);
}

// This node cannot know what the others do, so its workers end. A job that may change its size looks for the others
// again; one of fixed size is over.
void Nodes::lose_touch(const std::string& how) {
  const std::string text = this_node() + " " + how;
  if (pulse_ && (pulse_->state() == Heartbeat::State::kSilent || pulse_->state() == Heartbeat::State::kGone))
    lose_coordinator();
  if (store_lost_) drop_store();
  watch_.reset();
  if (fixed()) return end_with({.kind = RoundEnd::Kind::kFault, .fault = {.text = text, .code = kExitRendezvous}});
  end_with({.kind = RoundEnd::Kind::kMembership, .again = true, .text = text});
}

RoundEnd Nodes::publish(const Fault& fault) {
  RoundEnd mine{.kind = RoundEnd::Kind::kFault, .mine = true, .fault = fault};
  update();  // what ended the round may lie here unread, as where this process was stopped for a while: that was first
  if (news_) return *news_;
  if (options_.judge) mine.verdict = options_.judge(past_, fault);
  mine.again = mine.verdict.restart;
  const auto cannot_tell = [&] {  // what happened here is still the best that this node knows
    mine.again = mine.verdict.restart = false;
    news_ = mine;
    return mine;
  };
  if (!store_ || store_lost_) return cannot_tell();
  if (!one_node()) {
    const auto ended = store_->compare_set(keys::end(round_.number), std::nullopt, encode(mine));
    if (!ended.ok() && place_.has_successor() && !fault.final) {  // whose round has ended with who served the store
      store_lost_ = true;
      lose_touch("lost the store of " + coordinator_words_ + " (" + to_string(ended.error()) +
                 ") when it was to tell: " + fault.text);
      return *news_;
    }
    if (!ended.ok()) return cannot_tell();
    if (!ended->stored) {
      hear(parse_news(ended->value.value_or("another failure")));
      return *news_;
    }
  }
  news_ = mine;
  tell_ranks(fault.text);
  return mine;
}

// What another node has told. Its own words to the ranks are in the nodes' store: with etcd the ranks have another.
void Nodes::hear(RoundEnd news) {
  if (uses_etcd(options_) && news.kind == RoundEnd::Kind::kFault) tell_ranks(news.fault.text);
  if (uses_etcd(options_) && news.kind == RoundEnd::Kind::kMembership && !news.gentle) tell_ranks(news.text);
  end_with(std::move(news));
}

// The ranks would else see the others end, and not why.
void Nodes::tell_ranks(const std::string& why) {
  const std::string key = keys::fault(round_.number);
  if (!uses_etcd(options_)) {
    (void)store_->set(key, why);
  } else if (place_.ranks_server() != nullptr) {
    (void)place_.ranks_server()->local()->set(key, why);
  }
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
  if (*count != round_.layout.nodes()) return;
  const auto ended = store_->compare_set(keys::end(round_.number), std::nullopt, encode(RoundEnd()));
  if (ended.ok()) return;
  store_lost_ = true;
  lose_touch("lost the store of " + coordinator_words_ + " as all ranks had ended: " + to_string(ended.error()));
}

bool Nodes::dispensable() {
  return (!place_.server() || place_.has_successor()) && options_.min_nodes < options_.nodes &&
         round_.layout.nodes() > options_.min_nodes;
}

bool Nodes::all_have_saved() {
  if (!store_) return true;  // and they do without this node
  if (!leaving_) leaving_ = store_->add(keys::leaving(round_.number), 1).ok();
  const auto done = store_->add(keys::done(round_.number), 0), leaving = store_->add(keys::leaving(round_.number), 0);
  return done.ok() && leaving.ok() && *done + *leaving >= round_.layout.nodes();
}

void Nodes::leave(Duration patience) {
  if (one_node() || !store_ || store_lost_ || !coordinator_) return;
  const bool others_go_on = (!place_.server() || place_.has_successor()) && (!news_ || news_->again);
  // Where a word here does not arrive the others miss this node's heartbeats, or its store, some seconds later.
  if (!coordination_) {
    (void)store_->push(keys::inbox(coordinator_->term), leave_note(id_));
  } else if (others_go_on) {  // and one of them coordinates
    const RoundEnd news{
        .kind = RoundEnd::Kind::kMembership, .again = true, .text = this_node() + " has left", .gentle = true};
    if (!news_) (void)store_->compare_set(keys::end(round_.number), std::nullopt, encode(news));
    coordination_.reset();
  } else {
    const bool alone = coordination_->wait_for_others(Deadline::after(patience));
    coordination_.reset();
    if (alone && uses_etcd(options_))
      // The next job of this name begins anew; if this fails, once the lease has ended, within a minute.
      (void)forget_etcd_job(place_.etcd_options(), Deadline::after(kCallLimit));
  }
  pulse_.reset();
}

}  // namespace tutti
