// Opening the ways to the peers of a new group: a control block in shared memory for the members on one host, links
// over shared memory and TCP. One exchange: everybody learns where the block of its host lies.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/comm/backends/carried_operation.h"
#include "tutti/comm/backends/load.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/links/network_probe.h"

namespace tutti {
namespace {

constexpr std::uint64_t kWorldId = 1;
constexpr std::string_view kCrowded = "crowded ";  // before what rank 0 tells of the network

}  // namespace

Result<std::shared_ptr<GroupState>> GroupState::create(std::shared_ptr<Process> process, Spec spec,
                                                       const Exchange& exchange, Deadline deadline) {
  auto group = std::shared_ptr<GroupState>(new GroupState(std::move(process), std::move(spec)));
  GroupState& g = *group;
  Process& p = *g.process_;
  g.limit_ = g.spec_.limit.count() > 0 ? g.spec_.limit : p.collective_timeout;
  const int n = g.size(), me = g.rank();
  g.cuda_ = std::make_unique<cuda::Calls>(
      cuda::Calls::Setup{.rank = me,
                         .size = n,
                         .heap = p.heap.get(),
                         .start_on_host = [&g](const Request& request, std::uint64_t sequence) {
                           return g.start_for_device(request, sequence);
                         }});
  if (n == 1) return group;
  if (p.flight) {
    g.flight_ =
        p.flight->add({.id = g.spec_.id, .name = g.spec_.name, .rank = me, .global_ranks = g.spec_.global_ranks});
    g.flight_rings_[0] = &g.flight_->collectives;
    g.flight_rings_[1] = &g.flight_->exchanges;
  }

  // So that not even the first look at the peers allocates.
  g.blockers_.ranks.reserve(std::size_t(n));
  g.blockers_.fds.reserve(std::size_t(n));

  // Who is on this host, in group order; the first of them makes the block.
  std::vector<int> nodes;
  for (const int global : g.spec_.global_ranks) nodes.push_back(p.world[global].node);
  g.hosts_ = Hosts(nodes);
  const std::vector<int>& here = g.hosts_.ranks_on(g.hosts_.host_of(me));
  g.host_ranks_ = int(here.size());
  g.spin_ = spin_policy(p.ranks_on_machine, p.cores_of_ranks);
  const int my_place = int(std::find(here.begin(), here.end(), me) - here.begin());
  const bool leader = my_place == 0, shares = here.size() > 1;
  std::string offset;
  if (shares) p.left_groups.collect(*p.heap);
  if (shares && leader) {
    const std::size_t bytes = GroupControl::bytes(int(here.size()));
    const auto place = p.heap->allocate(bytes);
    if (!place.ok()) {
      Error error = place.error();
      error.group = g.spec_.name, error.rank = me;
      return error;
    }
    g.memory_.control_block.push_back({*place, bytes});
    std::memset(p.heap->at(*place), 0, bytes);
    GroupControl(p.heap->at(*place), int(here.size())).crowded() = g.spin_.pauses == 0;
    offset = std::to_string(*place);
  }
  const std::vector<std::string> offsets = TUTTI_TRY(exchange(offset));

  GroupControl& control = g.memory_.control;
  std::vector<int> local_ranks;
  if (shares) {
    const int owner = p.world[g.spec_.global_ranks[here[0]]].local_rank;
    const auto place =
        parse_block_place(offsets[here[0]], GroupControl::bytes(int(here.size())), p.host->reserved(owner));
    if (!place)
      return Error{.code = Code::kInternal,
                   .detail = "rank " + std::to_string(here[0]) + " did not say where the group's control block is"};
    std::byte* const base = p.host->base(owner) + *place;
    control = GroupControl(base, int(here.size()));
    g.memory_.members = int(here.size());
    g.poison_word_ = &control.poison();
    for (int r : here) local_ranks.push_back(p.world[g.spec_.global_ranks[r]].local_rank);
    if (int(here.size()) == n && p.algorithm.empty() && p.engine_name == "tutti")
      g.direct_ = std::make_unique<DirectChannel>(*p.host, *p.heap, g.memory_, local_ranks, me);
  }

  std::vector<std::string> contacts(n);
  for (int r = 0; r < n; ++r)
    if (p.world[g.spec_.global_ranks[r]].node != p.world[p.rank].node)
      contacts[r] = p.world[g.spec_.global_ranks[r]].tcp_contact;
  const bool remote = int(here.size()) < n;
  for (int r = 0; r < n; ++r) g.peer_gone_.push_back(std::make_unique<std::atomic<bool>>(false));
  if (p.engine_name != "tutti") {
    TUTTI_TRY(g.open_engine(deadline));
    TUTTI_TRY(g.open_nccl(deadline));
    return group;
  }
  for (int purpose = 0; purpose < 2; ++purpose) {
    auto& links = g.links_[purpose];
    const std::uint64_t channel = g.spec_.id * 2 + std::uint64_t(purpose);
    if (remote && p.modelled_link) {
      links.resize(n);
      for (int r = 0; r < n; ++r)
        if (!g.is_here(r)) links[r] = p.modelled_link(g.spec_.global_ranks[r], channel);
    } else if (remote) {
      if (!p.tcp) return Error{.code = Code::kInternal, .detail = "a group over several hosts without a TCP transport"};
      auto connected = p.tcp->connect(contacts, g.spec_.global_ranks, me, channel, deadline);
      if (!connected.ok()) return g.with_cause(connected.error());
      links = *std::move(connected);
    }
    links.resize(n);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const int r = here[i], a = std::min(my_place, int(i)), b = std::max(my_place, int(i));
      if (r == me) continue;
      const auto allocate = [heap = p.heap.get(), memory = &g.memory_](std::size_t bytes) {
        return memory->allocate(*heap, bytes);
      };
      links[r] = std::make_unique<ShmLink>(control.link(purpose, a, b), me < r ? 0 : 1, p.heap->at(0),
                                           p.host->base(local_ranks[i]), allocate, p.host->bell(local_ranks[i]),
                                           g.peer_gone_[r].get());
    }
    for (auto& link : links) g.link_pointers_[purpose].push_back(link.get());
  }
  if (g.spec_.id == kWorldId && g.hosts_.count() > 1) TUTTI_TRY(g.learn_network(deadline));
  if (!g.direct_) {
    g.selector_ = std::make_unique<Selector>(g.hosts_, p.network, p.algorithm);
    g.planned_ = std::make_unique<PlannedCalls>(g.link_pointers_[0], me, g.hosts_, *g.selector_);
    if (me == 0 && log::wants("select")) {
      const std::string between = g.hosts_.count() > 1 ? ", between them " + network_text(p.network.between) : "";
      log::info("group " + g.spec_.name + ", " + std::to_string(n) + " ranks on " + std::to_string(g.hosts_.count()) +
                " hosts" + between + ":\n" + g.selector_->to_string());
    }
  }
  g.point_to_point_ = std::make_unique<PointToPoint>(g.link_pointers_[1], [&g](int peer) { return g.has_left(peer); });
  TUTTI_TRY(g.open_nccl(deadline));
  return group;
}

BackendSetup GroupState::backend_setup(const std::string& engine, Deadline deadline) {
  return {.group = spec_.name,
          .key = engine + "/" + std::to_string(spec_.id) + "/",
          .rank = rank(),
          .size = size(),
          .store = process_->store.get(),
          .address = process_->address,
          .limit = limit_,
          .deadline = deadline,
          .notify = [engine = process_->engine.get()] { engine->notify(); },
          .services = backend_services()};
}

// The library that carries this group, opened on all its members.
Status GroupState::open_engine(Deadline deadline) {
  auto opened = open_backend(process_->engine_name, backend_setup(process_->engine_name, deadline));
  if (!opened.ok()) return opening_failed(process_->engine_name, opened.error());
  backend_ = *std::move(opened);
  return {};
}

// What is between the hosts: measured by rank 0 and the first rank of another host, or as rank 0 was told, and known to
// all through the store.
Status GroupState::learn_network(Deadline deadline) {
  const int other = hosts_.ranks_on(1).front();
  const auto measure = [&](int peer) -> Status {
    Link& link = *links_[0][peer];
    if (rank() != 0) return answer_network(link, deadline);
    LinkCost cost;
    if (process_->given_network) {
      TUTTI_TRY(end_asking(link, deadline));
      cost = *process_->given_network;
    } else {
      cost = TUTTI_TRY(ask_network(link, deadline));
    }
    const bool crowded = process_->ranks_on_machine > process_->cores_of_ranks;
    return process_->store->set("network", (crowded ? std::string(kCrowded) : "") + to_words(cost));
  };
  const auto failed = [&](Error error, int peer) {
    error.operation = "measuring the network";
    error.group = spec_.name;
    error.rank = rank();
    error.peer = peer;
    return with_cause(std::move(error));
  };
  if (rank() == 0 || rank() == other) {
    const int peer = rank() == 0 ? other : 0;
    if (const Status status = measure(peer); !status.ok()) return failed(status.error(), peer);
  }
  const auto words = process_->store->get("network", deadline);
  if (!words.ok()) {
    Error error = words.error();
    if (error.code == Code::kTimeout)
      error.detail = "has not told what it measured between its host and that of rank " + std::to_string(other);
    return failed(std::move(error), 0);
  }
  process_->network.crowded = words->starts_with(kCrowded);
  process_->network.between =
      TUTTI_TRY(from_words(process_->network.crowded ? words->substr(kCrowded.size()) : *words));
  return {};
}

// Of a wait that came to nothing, whoever died meanwhile is the better reason.
Error GroupState::opening_failed(const std::string& engine, Error error) const {
  if (error.code == Code::kTimeout || error.code == Code::kPeerLost || error.code == Code::kUnreachable)
    if (const auto departure = departure_of_anybody(); departure && departure->evidence == Process::Evidence::kLoss)
      error = departure->error;
  error.operation = "opening the engine " + engine;
  error.group = spec_.name;
  error.rank = rank();
  return with_cause(std::move(error));
}

// A rank may die before the others have done opening: they tell one cause, as those do that find it in their first
// call. Who cannot be reached has no other cause, and its own hint is the better one.
Error GroupState::with_cause(Error error) const {
  const bool gone = error.code == Code::kUnreachable && error.errno_value == ECONNREFUSED;
  if (gone || error.code == Code::kPeerLost)
    error.cause = process_->root_cause(error, spec_.id, Process::Evidence::kLoss);
  return error;
}

GroupState::~GroupState() { process_->left_groups.add(std::move(memory_)); }

}  // namespace tutti
