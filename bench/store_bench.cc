// What a call of the store costs: in memory and over loopback, with the server on a thread of this process.
#include <benchmark/benchmark.h>

#include <thread>

#include "tutti/store/memory_store.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"

namespace tutti {
namespace {

Deadline soon() { return Deadline::after_seconds(60); }
const transport::Credentials kCredentials{.secret = transport::Secret::from_text("bench"), .job = "bench"};

struct Served {
  std::unique_ptr<StoreServer> server = StoreServer::start({.host = "127.0.0.1"}, kCredentials).or_throw();
  std::unique_ptr<TcpStore> client(int rank) const {
    return TcpStore::connect(server->address(), kCredentials, rank, soon()).or_throw();
  }
};

void set_in_memory(benchmark::State& state) {
  MemoryStore store;
  for (auto _ : state) store.set("key", "value").or_throw();
}
BENCHMARK(set_in_memory);

void set_over_tcp(benchmark::State& state) {
  const Served served;
  const auto store = served.client(0);
  const std::string value(std::size_t(state.range(0)), 'v');
  for (auto _ : state) store->set("key", value).or_throw();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(set_over_tcp)->Arg(16)->Arg(1 << 20)->UseRealTime();

// All clients, each on its thread, for a fixed number of rounds; "round" is the time of one.
void gather_all_over_tcp(benchmark::State& state) {
  const Served served;
  const int size = int(state.range(0));
  constexpr int kRounds = 200;
  for (auto _ : state) {
    std::vector<std::unique_ptr<TcpStore>> stores;
    for (int rank = 0; rank < size; ++rank) stores.push_back(served.client(rank));
    std::vector<std::thread> ranks;
    const auto begin = now();
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] {
        for (int round = 0; round < kRounds; ++round)
          (void)stores[std::size_t(rank)]->gather_all("g", rank, size, "0123456789abcdef", soon()).or_throw();
      });
    for (auto& rank : ranks) rank.join();
    state.SetIterationTime(seconds_since(begin));
  }
  state.counters["round"] = benchmark::Counter(double(state.iterations()) * kRounds,
                                               benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(gather_all_over_tcp)->Arg(2)->Arg(4)->UseManualTime();

void connect_and_handshake(benchmark::State& state) {
  const Served served;
  for (auto _ : state) benchmark::DoNotOptimize(served.client(0));
}
BENCHMARK(connect_and_handshake)->UseRealTime();

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
