// Opening the paths of a new group: a control block in shared memory for the members on one host, links over shared
// memory and TCP, or another library. One exchange of texts: each member learns where the block of its host is.
#include "tutti/comm/group/paths.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/comm/backends/carried_operation.h"
#include "tutti/comm/backends/load.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/network_probe.h"
#include "tutti/comm/links/select.h"

namespace tutti::comm {
namespace {

constexpr std::uint64_t kWorldId = 1;
constexpr std::string_view kCrowded = "crowded ";  // before what rank 0 tells of the network
constexpr int kCollectives = 0, kMessages = 1;     // purposes of links

}  // namespace

Paths::Paths(Process& process, const GroupSpec& spec, const Peers& peers, Duration limit)
    : process_(process),
      spec_(spec),
      peers_(peers),
      limit_(limit),
      cuda_(cuda::Calls::Setup{.rank = spec.rank,
                               .size = spec.size(),
                               .group = spec.name,
                               .tries_ipc = process.cuda_engine != "staged" && peers.are_all_here(),
                               .messages = noted_messages(),
                               .heap = process.heap.get(),
                               .start_on_host = [this](const Request& request, std::uint64_t sequence) {
                                 return start_for_device(request, sequence);
                               }}) {}

// Of this rank to others, if they may copy from one another's GPU memory. Used once the paths are open.
cuda::NotedMessages Paths::noted_messages() {
  if (process_.cuda_engine == "staged") return {};
  return {.reach = [this](int peer) { return point_to_point_ && point_to_point_->carries_notes_to(peer); },
          .send = [this](const Request& request, std::uint64_t sequence,
                         const Note& note) { return point_to_point_->make_noted_send(request, sequence, note); },
          .recv = [this](const Request& request,
                         std::uint64_t sequence) { return point_to_point_->make_noted_recv(request, sequence); }};
}

// The other members may still read this rank's blocks.
Paths::~Paths() { process_.left_groups.add(std::move(memory_)); }

Status Paths::open(const GatherTexts& gather, Deadline deadline) {
  if (size() == 1) return {};
  std::vector<int> nodes;
  for (int r = 0; r < size(); ++r) nodes.push_back(member(r).node);
  hosts_ = comm::Hosts(nodes);
  here_ = hosts_.ranks_on(hosts_.host_of(rank()));
  for (int r = 0; r < size(); ++r) peer_gone_.push_back(std::make_unique<std::atomic<bool>>(false));
  TUTTI_TRY(open_control_block(gather));
  if (process_.engine_name != "tutti") {
    TUTTI_TRY(open_backend_for_cpu(deadline));
    return open_nccl(deadline);
  }
  TUTTI_TRY(open_links(deadline));
  if (spec_.id == kWorldId && hosts_.count() > 1) TUTTI_TRY(learn_network(deadline));
  if (!direct_) open_plans();
  point_to_point_ = std::make_unique<comm::PointToPoint>(link_pointers_[kMessages],
                                                         [this](int peer) { return peers_.has_left(peer); });
  return open_nccl(deadline);
}

// The first member on a host makes its block.
Status Paths::open_control_block(const GatherTexts& gather) {
  Process& p = process_;
  const int sharing = int(here_.size());
  const std::size_t bytes = comm::GroupControl::bytes(sharing);
  std::string offset;
  if (sharing > 1) p.left_groups.collect(*p.heap);
  if (sharing > 1 && here_[0] == rank()) {
    const auto place = p.heap->allocate(bytes);
    if (!place.ok()) {
      Error error = place.error();
      error.group = spec_.name, error.rank = rank();
      return error;
    }
    memory_.control_block.push_back({*place, bytes});
    std::memset(p.heap->at(*place), 0, bytes);
    comm::GroupControl(p.heap->at(*place), sharing).crowded() = p.ranks_on_machine > p.cores_of_ranks;
    offset = std::to_string(*place);
  }
  const std::vector<std::string> offsets = TUTTI_TRY(gather(offset));
  if (sharing == 1) return {};
  const int owner = member(here_[0]).local_rank;
  const auto place = comm::parse_block_place(offsets[std::size_t(here_[0])], bytes, p.host->reserved(owner));
  if (!place)
    return Error{.code = Code::kInternal,
                 .detail = "rank " + std::to_string(here_[0]) + " did not say where the group's control block is"};
  memory_.control = comm::GroupControl(p.host->base(owner) + *place, sharing);
  memory_.members = sharing;
  poison_word_ = &memory_.control.poison();
  if (!peers_.are_all_here() || !p.algorithm.empty() || p.engine_name != "tutti") return {};
  std::vector<int> local_ranks;
  for (const int r : here_) local_ranks.push_back(member(r).local_rank);
  direct_ = std::make_unique<comm::DirectChannel>(*p.host, *p.heap, memory_, local_ranks, rank());
  return {};
}

Status Paths::open_links(Deadline deadline) {
  for (const int purpose : {kCollectives, kMessages}) {
    if (!peers_.are_all_here()) TUTTI_TRY(open_network_links(purpose, deadline));
    links_[purpose].resize(std::size_t(size()));
    open_shared_links(purpose);
    for (auto& link : links_[purpose]) link_pointers_[purpose].push_back(link.get());
  }
  return {};
}

// To the ranks of other hosts.
Status Paths::open_network_links(int purpose, Deadline deadline) {
  const std::uint64_t channel = spec_.id * 2 + std::uint64_t(purpose);
  auto& links = links_[purpose];
  if (process_.modelled_link) {
    links.resize(std::size_t(size()));
    for (int r = 0; r < size(); ++r)
      if (!peers_.is_here(r))
        links[std::size_t(r)] = process_.modelled_link(spec_.global_ranks[std::size_t(r)], channel);
    return {};
  }
  if (!process_.tcp)
    return Error{.code = Code::kInternal, .detail = "a group over several hosts without a TCP transport"};
  std::vector<std::string> contacts(spec_.global_ranks.size());
  for (int r = 0; r < size(); ++r)
    if (!peers_.is_here(r)) contacts[std::size_t(r)] = member(r).tcp_contact;
  auto connected = process_.tcp->connect(contacts, spec_.global_ranks, rank(), channel, deadline);
  if (!connected.ok()) return with_cause(connected.error());
  links = *std::move(connected);
  return {};
}

// To the ranks of this host.
void Paths::open_shared_links(int purpose) {
  const int mine = int(std::find(here_.begin(), here_.end(), rank()) - here_.begin());
  for (int i = 0; i < int(here_.size()); ++i) {
    if (i == mine) continue;
    const std::size_t r = std::size_t(here_[std::size_t(i)]);
    const int local = member(int(r)).local_rank;
    const auto allocate = [heap = process_.heap.get(), memory = &memory_](std::size_t bytes) {
      return memory->allocate(*heap, bytes);
    };
    links_[purpose][r] = std::make_unique<transport::ShmLink>(
        memory_.control.link(purpose, std::min(mine, i), std::max(mine, i)), mine < i ? 0 : 1, process_.heap->at(0),
        process_.host->base(local), allocate, process_.host->bell(local), peer_gone_[r].get());
  }
}

void Paths::open_plans() {
  selector_ = std::make_unique<comm::Selector>(hosts_, process_.network, process_.algorithm);
  planned_ = std::make_unique<comm::PlannedCalls>(link_pointers_[kCollectives], rank(), hosts_, *selector_);
  if (rank() != 0 || !log::wants("select")) return;
  const std::string between =
      hosts_.count() > 1 ? ", between them " + comm::network_text(process_.network.between) : "";
  log::info("group " + spec_.name + ", " + std::to_string(size()) + " ranks on " + std::to_string(hosts_.count()) +
            " hosts" + between + ":\n" + selector_->to_string());
}

Status Paths::open_backend_for_cpu(Deadline deadline) {
  auto opened = comm::open_backend(process_.engine_name, backend_setup(process_.engine_name, deadline));
  if (!opened.ok()) return opening_failed(process_.engine_name, opened.error());
  backend_ = *std::move(opened);
  return {};
}

comm::BackendSetup Paths::backend_setup(const std::string& engine, Deadline deadline) {
  return {.group = spec_.name,
          .key = engine + "/" + std::to_string(spec_.id) + "/",
          .rank = rank(),
          .size = size(),
          .store = process_.store.get(),
          .address = process_.address,
          .limit = limit_,
          .deadline = deadline,
          .notify = [thread = process_.progress_thread.get()] { thread->notify(); },
          .services = comm::backend_services()};
}

// The network between the hosts: measured by rank 0 and the first rank of another host, or as given to rank 0. All
// ranks read it from the store.
Status Paths::learn_network(Deadline deadline) {
  const int other = hosts_.ranks_on(1).front();
  const auto measure = [&](int peer) -> Status {
    transport::Link& link = *links_[kCollectives][std::size_t(peer)];
    if (rank() != 0) return comm::answer_network(link, deadline);
    LinkCost cost;
    if (process_.given_network) {
      TUTTI_TRY(comm::end_asking(link, deadline));
      cost = *process_.given_network;
    } else {
      cost = TUTTI_TRY(comm::ask_network(link, deadline));
    }
    const bool crowded = process_.ranks_on_machine > process_.cores_of_ranks;
    return process_.store->set("network", (crowded ? std::string(kCrowded) : "") + comm::to_words(cost));
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
  const auto words = process_.store->get("network", deadline);
  if (!words.ok()) {
    Error error = words.error();
    if (error.code == Code::kTimeout)
      error.detail = "did not report what it measured between its host and the host of rank " + std::to_string(other);
    return failed(std::move(error), 0);
  }
  process_.network.crowded = words->starts_with(kCrowded);
  process_.network.between =
      TUTTI_TRY(comm::from_words(process_.network.crowded ? words->substr(kCrowded.size()) : *words));
  return {};
}

// Where a wait failed, a rank that died meanwhile is the better reason.
Error Paths::opening_failed(const std::string& engine, Error error) const {
  if (error.code == Code::kTimeout || error.code == Code::kPeerLost || error.code == Code::kUnreachable)
    if (const auto departure = peers_.departure_of_anybody();
        departure && departure->evidence == Process::Evidence::kLoss)
      error = departure->error;
  error.operation = "opening the engine " + engine;
  error.group = spec_.name;
  error.rank = rank();
  return with_cause(std::move(error));
}

// A rank may die before the others have opened the group: they report one cause, as ranks do that notice it in their
// first call. A rank that cannot be reached has no other cause, and its own hint is the better one.
Error Paths::with_cause(Error error) const {
  const bool gone = error.code == Code::kUnreachable && error.errno_value == ECONNREFUSED;
  if (error.code == Code::kPeerLost && error.peer >= 0) error.lost = {error.peer};
  if (gone || error.code == Code::kPeerLost) process_.add_root_cause(error, spec_.id, Process::Evidence::kLoss);
  return error;
}

// ---- Calls ----

void run_alone(const Request& request) {
  const std::size_t count = comm::extent_of(request, 0, 1)->out;
  if (count == 0 || !request.out || !request.in) return;
  if (is_reduction(request.kind) && request.op == ReduceOp::kPremulSum) {
    const void* const in[] = {request.in};
    void* const out[] = {request.out};
    reduce_many(request.dtype, request.op, in, out, count, 1, &request.factor);
    return;
  }
  if (request.out != request.in) std::memmove(request.out, request.in, count * size_of(request.dtype));
}

Result<comm::StartedOperation> Paths::start(const Request& request, std::uint64_t sequence) {
  if (backend_)
    return comm::StartedOperation(TUTTI_TRY(comm::start_carried(*backend_, request, sequence, rank(), size())));
  if (request.kind == Kind::kSend) return comm::StartedOperation(point_to_point_->make_send(request, sequence));
  if (request.kind == Kind::kRecv) return comm::StartedOperation(point_to_point_->make_recv(request, sequence));
  if (direct_) return comm::StartedOperation(std::make_unique<comm::DirectOperation>(*direct_, request, sequence));
  return comm::StartedOperation(TUTTI_TRY(planned_->start(request, sequence)));
}

FlightPath Paths::flight_path(const Request& request) const {
  if (request.device != kHost)
    return cuda_.is_by_nccl(request)  ? FlightPath::kNccl
           : cuda_.is_by_ipc(request) ? FlightPath::kIpc
                                      : FlightPath::kStaged;
  if (backend_)
    return process_.engine_name == "gloo"  ? FlightPath::kGloo
           : process_.engine_name == "mpi" ? FlightPath::kMpi
                                           : FlightPath::kNotYetKnown;
  if (is_point_to_point(request.kind)) return FlightPath::kLink;
  return direct_ ? FlightPath::kDirect : path_of(selector_->algorithm(request));
}

void Paths::abort() {
  if (backend_) backend_->abort();
  cuda_.abort();
  for (const auto& links : links_)
    for (const auto& link : links)
      if (link) link->shut();
}

}  // namespace tutti::comm
