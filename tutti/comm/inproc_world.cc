#include "tutti/comm/inproc_world.h"

#include <exception>
#include <map>
#include <thread>
#include <tuple>

#include "tutti/base/machine.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/store/memory_store.h"
#include "tutti/transport/sim/sim_link.h"

namespace tutti {
namespace {

// The rank that asks first creates both ends of a link. The other end waits here for its owner.
class SimNetwork {
 public:
  explicit SimNetwork(const ModelledNetwork& model) : model_(model) {}

  // `host` is the Host of `rank`, whose process owns the returned end.
  std::unique_ptr<transport::Link> link(int rank, int peer, std::uint64_t channel, const transport::Host& host) {
    MutexLock lock(mutex_);
    if (auto waiting = ends_.extract({rank, peer, channel})) return std::move(waiting.mapped());
    const auto ring = [&host](int whom) { return [bell = host.bell(whom)] { bell.ring(); }; };
    auto [mine, theirs] = transport::make_sim_links({.latency = model_.between.latency,
                                                     .bandwidth = model_.between.bandwidth,
                                                     .overhead = model_.between.overhead,
                                                     .jitter = model_.jitter,
                                                     .seed = model_.seed + links_++},
                                                    ring(rank), ring(peer));
    ends_.emplace(std::tuple(peer, rank, channel), std::move(theirs));
    return std::move(mine);
  }

 private:
  const ModelledNetwork model_;
  Mutex mutex_;
  std::uint64_t links_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::map<std::tuple<int, int, std::uint64_t>, std::unique_ptr<transport::Link>> ends_
      TUTTI_GUARDED_BY(mutex_);  // by owner, peer, channel
};

}  // namespace

std::vector<Group> make_inproc_world(int size, const InprocOptions& options) {
  auto hosts = transport::Host::inproc(size, options.heap_limit).or_throw();
  MemoryStore table;
  std::vector<Result<std::shared_ptr<comm::GroupState>>> made(size, std::shared_ptr<comm::GroupState>());
  std::vector<std::thread> threads;
  const auto network = options.network ? std::make_shared<SimNetwork>(*options.network) : nullptr;
  const int nodes = !network ? 1 : options.network->hosts > 0 ? std::min(size, options.network->hosts) : size;
  for (int rank = 0; rank < size; ++rank) {
    auto process = std::make_shared<comm::Process>();
    process->rank = rank;
    process->ranks_on_machine = size;
    process->cores_of_ranks = usable_cores();
    for (int r = 0; r < size; ++r)
      process->world.push_back({.node = r % nodes, .local_rank = r, .agent = r % nodes, .machine_rank = r});
    process->collective_timeout = options.collective_timeout;
    process->farewell_timeout = options.leave_timeout;
    process->hang_warning = options.hang_warning;
    process->algorithm = options.algorithm;
    process->cuda_engine = "staged";  // a process cannot open the handles of its own GPU memory
    process->host = std::move(hosts[rank]);
    if (network) {
      process->given_network = options.network->between;
      process->modelled_link = [network, rank, host = process->host.get()](int peer, std::uint64_t channel) {
        return network->link(rank, peer, channel, *host);
      };
    }
    if (!options.flight_folder.empty())
      process->flight = std::make_unique<trace::FlightRecorder>(
          trace::FlightRecorder::Options{
              .folder = options.flight_folder, .job = "threads", .rank = rank, .world_size = size},
          comm::describe_flight_call);
    process->heap = std::make_unique<comm::Heap>(process->host->arena());
    process->progress_thread = comm::ProgressThread::create(process->host.get(), {}).or_throw();
    auto store = table.clone(Deadline::after_seconds(1)).or_throw();
    Store* const exchange_store = store.get();
    process->store = std::move(store);
    threads.emplace_back([=, &made] {
      comm::GroupState::Spec spec{.name = "world", .rank = rank};
      for (int r = 0; r < size; ++r) spec.global_ranks.push_back(r);
      const auto deadline = Deadline::after_seconds(60);
      const auto exchange = [&](const std::string& mine) {
        return exchange_store->gather_all("world", rank, size, mine, deadline);
      };
      made[rank] = comm::GroupState::create(process, std::move(spec), exchange, deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Group> groups;
  for (auto& group : made) groups.emplace_back(std::move(group).or_throw());
  return groups;
}

}  // namespace tutti
