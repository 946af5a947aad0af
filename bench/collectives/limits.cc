// The triad works in place, so it moves three words for each of its elements and no line is fetched only to be
// overwritten: what the operations do as well. It is compiled for each width of vectors, and the widest that the
// processor has is taken.
#include "bench/collectives/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/objects.h"
#include "tutti/transport/socket.h"

namespace tutti::bench {
namespace {

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));

inline __attribute__((always_inline)) void triad_body(float* a, const float* b, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Vector x, y;
    __builtin_memcpy(&x, a + i, sizeof x);
    __builtin_memcpy(&y, b + i, sizeof y);
    x += 0.5f * y;
    __builtin_memcpy(a + i, &x, sizeof x);
  }
  for (; i < count; ++i) a[i] += 0.5f * b[i];
}

using Triad = void(float*, const float*, std::size_t);
void triad_plain(float* a, const float* b, std::size_t count) { triad_body(a, b, count); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void triad_avx2(float* a, const float* b, std::size_t n) { triad_body(a, b, n); }
__attribute__((target("avx512f"))) void triad_avx512(float* a, const float* b, std::size_t n) { triad_body(a, b, n); }
Triad* widest_triad() {
  return __builtin_cpu_supports("avx512f") ? triad_avx512 : __builtin_cpu_supports("avx2") ? triad_avx2 : triad_plain;
}
#else
Triad* widest_triad() { return triad_plain; }
#endif

constexpr int kTriadRounds = 7;
constexpr std::size_t kBytesOfARound = 32 << 20;  // so that a round lasts for a millisecond or more

// The best of so many windows counts, the first of which is that of the slow start.
constexpr std::size_t kChunk = 256 << 10, kChunksOfAWindow = 128, kWindows = 9;
constexpr Duration kBenchPatience = std::chrono::seconds(60);

void send_stream(const Fd& stream, Deadline deadline) {
  // Where the system has or permits no cubic, the stream runs with what there is, as ours do.
  (void)::setsockopt(stream.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  const std::vector<std::byte> chunk(kChunk);
  for (std::size_t i = 0; i < kWindows * kChunksOfAWindow; ++i)
    transport::send_all(stream.get(), chunk, deadline).or_throw();
}

double receive_stream(const Fd& stream, Deadline deadline) {
  std::vector<std::byte> chunk(kChunk);
  double best = 0;
  for (std::size_t window = 0; window < kWindows; ++window) {
    const auto begin = now();
    for (std::size_t i = 0; i < kChunksOfAWindow; ++i) transport::recv_all(stream.get(), chunk, deadline).or_throw();
    if (window > 0) best = std::max(best, double(kChunksOfAWindow * kChunk) / seconds_since(begin));
  }
  return best;
}

}  // namespace

void triad(float* a, const float* b, std::size_t count) {
  static Triad* const widest = widest_triad();
  widest(a, b, count);
}

double memory_speed(const Group& world, int cores, std::byte* a, const std::byte* b, std::size_t bytes) {
  const comm::Process& process = world.state().process();
  const int own_place = process.world[std::size_t(process.rank)].machine_rank;
  const int active = std::min(cores, process.ranks_on_machine);
  const std::size_t count = bytes / sizeof(float);
  const int calls = int(std::clamp<std::size_t>(kBytesOfARound / std::max<std::size_t>(bytes, 1), 1, 4096));
  double least = 1e9;
  for (int round = 0; round < kTriadRounds; ++round) {
    barrier(world);
    const auto begin = now();
    for (int i = 0; i < calls && own_place < active; ++i)
      triad(reinterpret_cast<float*>(a), reinterpret_cast<const float*>(b), count);
    least = std::min(least, all_reduce(world, seconds_since(begin) / calls, ReduceOp::kMax));
  }
  return double(active) * 3 * double(count * sizeof(float)) / least;
}

double wire_speed(const Group& world) {
  std::vector<std::int32_t> hosts(std::size_t(world.size()));
  const std::int32_t host = world.node();
  all_gather(world, std::span(&host, 1), std::span(hosts));
  const auto other = std::find_if(hosts.begin(), hosts.end(), [&](std::int32_t h) { return h != hosts[0]; });
  TUTTI_REQUIRE(other != hosts.end(), "all ranks are on one host: there is no wire to measure");
  const int sender = int(other - hosts.begin());

  const Deadline deadline = Deadline::after(kBenchPatience);
  transport::Listener listener;
  std::string place;
  if (world.rank() == 0) {
    listener = transport::listen({.host = world.state().process().address}).or_throw();
    place = to_string(listener.address);
  }
  broadcast_bytes(world, place);
  double speed = 0;
  if (world.rank() == sender) {
    send_stream(transport::connect(transport::parse_address(place).or_throw(), deadline).or_throw(), deadline);
  } else if (world.rank() == 0) {
    (void)transport::wait_readable(listener.fd.get(), deadline).or_throw();
    const Fd stream = transport::accept(listener).or_throw();
    if (!stream) throw Exception(deadline.error("nobody connected to " + place + " to measure the wire"));
    speed = receive_stream(stream, deadline);
  }
  broadcast(world, std::span(&speed, 1));
  return speed;
}

double least_memory_seconds(const Operation& operation, std::size_t bytes, int ranks, int groups, double speed) {
  return speed > 0 ? operation.moved(ranks) * double(bytes) * groups / speed : 0;
}

double least_wire_seconds(const Operation& operation, std::size_t bytes, int hosts, double speed) {
  return speed > 0 ? operation.bus_factor(hosts) * double(bytes) / speed : 0;
}

}  // namespace tutti::bench
