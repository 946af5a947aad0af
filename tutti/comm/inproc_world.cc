#include "tutti/comm/inproc_world.h"

#include <exception>
#include <thread>

#include "tutti/base/cores.h"
#include "tutti/comm/group_state.h"
#include "tutti/store/memory_store.h"

namespace tutti {

std::vector<Group> make_inproc_world(int size, const InprocOptions& options) {
  auto hosts = Host::inproc(size, options.heap_limit).or_throw();
  MemoryStore table;
  std::vector<Result<std::shared_ptr<GroupState>>> made(size, std::shared_ptr<GroupState>());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    auto process = std::make_shared<Process>();
    process->rank = rank;
    process->ranks_on_machine = size;
    process->cores_of_ranks = usable_cores();
    for (int r = 0; r < size; ++r) process->world.push_back({.node = 0, .local_rank = r, .machine_rank = r});
    process->collective_timeout = options.collective_timeout;
    process->farewell_timeout = options.leave_timeout;
    process->algorithm = options.algorithm;
    process->host = std::move(hosts[rank]);
    if (!options.flight_folder.empty())
      process->flight = std::make_unique<FlightRecorder>(
          FlightRecorder::Options{.folder = options.flight_folder, .job = "threads", .rank = rank, .world_size = size},
          describe_flight_call);
    process->heap = std::make_unique<Heap>(process->host->arena());
    process->engine = std::make_unique<Engine>(process->host.get(), std::vector<Engine::Watched>());
    auto store = table.clone(Deadline::after_seconds(1)).or_throw();
    Store* const exchange_store = store.get();
    process->store = std::move(store);
    threads.emplace_back([=, &made] {
      GroupState::Spec spec{.name = "world", .rank = rank};
      for (int r = 0; r < size; ++r) spec.global_ranks.push_back(r);
      const auto deadline = Deadline::after_seconds(60);
      const auto exchange = [&](const std::string& mine) {
        return exchange_store->gather_all("world", rank, size, mine, deadline);
      };
      made[rank] = GroupState::create(process, std::move(spec), exchange, deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Group> groups;
  for (auto& group : made) groups.emplace_back(std::move(group).or_throw());
  return groups;
}

}  // namespace tutti
