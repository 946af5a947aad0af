// Rendezvous through an etcd server of the site: --rdzv-backend etcd. No node is needed for the store: the first agent
// that claims the part coordinates, and if it is lost another one that still reaches etcd does.
//
// etcd is an arbiter between agents that do not hear each other. An agent that misses the coordinator says so in etcd;
// a coordinator that lives and may decide changes a value there once a second. So dead is told from cut off, on both
// sides.
//
// The ranks of a round use the job's own kind of store, which node 0 serves them, anew for each round.
#include <future>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/membership/addresses.h"
#include "tutti/launch/membership/member.h"
#include "tutti/store/etcd/etcd_store.h"

namespace tutti::launch::membership {
namespace {

class EtcdRendezvous final : public Member {
 public:
  explicit EtcdRendezvous(NodesOptions options) : Member(options, limits_of(options)) {}

 private:
  // The store.
  Result<std::unique_ptr<Store>> connect(Deadline deadline) override;
  std::string address() const override { return options_.etcd; }
  std::string local_address() const override { return local_address_; }
  std::string server_name() const override { return "etcd"; }
  Error explain_unreachable(Error error) const override;
  EtcdOptions etcd_options() const;

  // The coordinator.
  Result<Choice> choose(const std::optional<CoordinatorAddress>& other, Deadline deadline, double& next_line) override;
  Result<std::unique_ptr<Store>> prepare_claim(CoordinatorOptions& options,
                                               const std::optional<CoordinatorAddress>& last) override;
  Result<bool> reaches_coordinator() override;
  void on_coordinator_lost(bool ended) override;
  bool may_name_a_lost_coordinator() const override { return true; }
  std::string lost_coordinator_hint() const override;
  Result<std::optional<std::string>> sign_of_life(const CoordinatorAddress& suspect) const;
  Status wait_out_cut(const CoordinatorAddress& coordinator, Deadline deadline, double& next_line);

  // A round.
  Status settle_store(const Participants& participants, Round& round) override;
  void inform_ranks(const std::string& why) override;
  void on_ended_elsewhere(const RoundEnd& end) override;
  void on_last_to_leave() override;

  std::unique_ptr<StoreServer> ranks_server_;  // on node 0: the ranks' store of the round, until the next
  std::string local_address_;
  std::future<void> told_arbiter_;
};

// ---- the store ----

EtcdOptions EtcdRendezvous::etcd_options() const {
  const EtcdAccess& access = options_.etcd_access;
  return {.endpoints = options_.etcd,
          .prefix = "/tutti/" + options_.credentials.job,
          .ca_file = access.ca_file,
          .certificate_file = access.certificate_file,
          .key_file = access.key_file,
          .user = access.user,
          .password = access.password};
}

Result<std::unique_ptr<Store>> EtcdRendezvous::connect(Deadline deadline) {
  auto store = TUTTI_TRY(connect_etcd(etcd_options(), deadline));
  local_address_ = TUTTI_TRY(own_address_toward(options_.etcd));
  store->set_call_timeout(kCallLimit);
  return store;
}

Error EtcdRendezvous::explain_unreachable(Error error) const {
  error.hint =
      "is etcd started, is that its address (--rdzv-endpoint), and does a firewall let " + options_.etcd + " through?";
  return error;
}

// ---- the coordinator ----

// An agent that has missed the coordinator claims its part, unless the coordinator shows life in etcd.
Result<EtcdRendezvous::Choice> EtcdRendezvous::choose(const std::optional<CoordinatorAddress>& other, Deadline deadline,
                                                      double& next_line) {
  if (!other) return Choice::kClaim;
  if (other->id != suspect_) return Choice::kFollow;
  const auto sign = TUTTI_TRY(sign_of_life(*other));
  if (TUTTI_TRY(answers(*other))) return Choice::kFollow;
  if (suspect_ended_ || TUTTI_TRY(sign_of_life(*other)) == sign) return Choice::kClaim;
  TUTTI_TRY(wait_out_cut(*other, deadline, next_line));
  return Choice::kLookAgain;
}

Result<std::unique_ptr<Store>> EtcdRendezvous::prepare_claim(CoordinatorOptions& options,
                                                             const std::optional<CoordinatorAddress>&) {
  options.arbiter = true;
  return store_->clone(Deadline::after(kCallLimit));
}

// Through etcd a request gets to a coordinator that this node is cut off from, and that would then wait for it in vain.
Result<bool> EtcdRendezvous::reaches_coordinator() {
  if (!heartbeat_) return true;
  return hears();
}

// What etcd hears of a coordinator: it changes once a second, as long as that one lives and may decide.
Result<std::optional<std::string>> EtcdRendezvous::sign_of_life(const CoordinatorAddress& suspect) const {
  const std::string key = keys::alive(suspect.term);
  if (!TUTTI_TRY(store_->check({key}))) return std::optional<std::string>();
  return std::optional(TUTTI_TRY(store_->get(key, Deadline::after(kCallLimit))));
}

// The coordinator lives, and hears enough of the others: taking its part would only take the job from those.
Status EtcdRendezvous::wait_out_cut(const CoordinatorAddress& coordinator, Deadline deadline, double& next_line) {
  TUTTI_TRY(store_->set(keys::misses(coordinator.term, id_), ""));  // it may have heard this agent once more meanwhile
  const std::string who = "the coordinator, " + coordinator.host + " at " + coordinator.address;
  if (deadline.expired())
    return deadline.error(who + ", reaches etcd, but not this node",
                          "is the network between the nodes whole, also for UDP?");
  if (deadline.waited() < next_line) return {};
  next_line = deadline.waited() + kSayEvery;
  options_.say(who + ", reaches etcd, but not this node: waiting for its heartbeats, for " +
               seconds_text(deadline.waited()) + " of " + seconds_text(deadline.limit()));
  return {};
}

// At once, and beside what ends the workers: a coordinator that hears nothing for some seconds takes this node for
// dead, and continues though it may be in the minority.
void EtcdRendezvous::on_coordinator_lost(bool ended) {
  if (ended) return;
  const auto tell = [etcd = etcd_options(), key = keys::misses(coordinator_->term, id_)] {
    const auto store = connect_etcd(etcd, Deadline::after(kCallLimit));
    if (!store.ok()) return;  // then it is cut off from etcd too, and can take part in nothing
    (*store)->set_call_timeout(kCallLimit);
    (void)(*store)->set(key, "");  // as above
  };
  auto told = start_async(tell);
  if (!told.ok()) return tell();
  told_arbiter_ = *std::move(told);
}

std::string EtcdRendezvous::lost_coordinator_hint() const {
  return "; if that agent was killed, etcd removes it within a minute";
}

// ---- a round ----

Status EtcdRendezvous::settle_store(const Participants& participants, Round& round) {
  const std::string key = keys::store(participants.round);
  ranks_server_.reset();  // until now others may have read there what ended the last round
  if (participants.nodes.front().id == id_) {
    ranks_server_ = TUTTI_TRY(StoreServer::start({.host = local_address_}, options_.credentials));
    TUTTI_TRY(store_->set(key, to_string(ranks_server_->address())));
  }
  round.store = TUTTI_TRY(store_->get(key, Deadline::after(options_.timeout)));
  if (ranks_server_) round.unix_store = unix_address_of(*ranks_server_, options_);
  return {};
}

void EtcdRendezvous::inform_ranks(const std::string& why) {
  if (ranks_server_) (void)ranks_server_->local()->set(keys::fault(round_.number), why);
}

// The node that ended the round can reach etcd, but not the ranks' store.
void EtcdRendezvous::on_ended_elsewhere(const RoundEnd& end) {
  if (end.kind == RoundEnd::Kind::kFault) inform_ranks(end.fault.text);
  if (end.kind == RoundEnd::Kind::kMembership && !end.gentle) inform_ranks(end.text);
}

// The next job of this name begins with an empty table; if this fails, when the lease has ended, within a minute.
void EtcdRendezvous::on_last_to_leave() { (void)forget_etcd_job(etcd_options(), Deadline::after(kCallLimit)); }

}  // namespace

Result<std::unique_ptr<Rendezvous>> open_etcd_rendezvous(NodesOptions options) {
  return as_result([&] { return std::unique_ptr<Rendezvous>(std::make_unique<EtcdRendezvous>(std::move(options))); });
}

}  // namespace tutti::launch::membership
