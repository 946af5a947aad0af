// all_reduce against the loop inside it, in turn, by the same processes and in the same memory:
//
//   tutti run -n 2 --bind core paired_all_reduce [BYTES [ROUNDS]]
//
// `tutti bench --peers` runs the bare loop as a program of its own. On a machine that is shared, two programs a second
// apart see different memory: where their pages lie and what a neighbour does change a figure more than our code does.
// Here both work on the same pages within milliseconds, so that the ratio is that of the code alone. A round is some
// calls of the one, then as many of the other, the order changing from round to round; its figure is the slowest
// rank's.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/peers/bare_sum.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/core.h"

namespace {

using tutti::Group;

double seconds_now() { return tutti::to_seconds(tutti::now().time_since_epoch()); }

class Pair {
 public:
  Pair(const Group& world, std::size_t count)
      : world_(world),
        count_(count),
        vector_(world.allocate_array<float>(count)),
        line_(world.allocate_array<Line>(1)) {
    std::memset(vector_.get(), 0, count * sizeof(float));
    line_[0].arrived = 0;
    const std::span<std::byte> mine[] = {std::as_writable_bytes(std::span(vector_.get(), count)),
                                         std::as_writable_bytes(std::span(line_.get(), 1))};
    const auto places = tutti::peer_memory(world, mine).or_throw();
    const int n = world.size();
    TUTTI_REQUIRE(places[0], "the ranks share no memory: all on one host, please");
    for (int r = 0; r < n; ++r) {
      vectors_.push_back(reinterpret_cast<float*>(places[r]));
      lines_.push_back(reinterpret_cast<Line*>(places[n + r]));
    }
  }

  void ours() { tutti::all_reduce(world_, std::span(vector_.get(), count_)); }
  void bare() {
    meet();
    sum_(vectors_.data(), world_.size(), cut(world_.rank()), cut(world_.rank() + 1));
    meet();
  }

 private:
  struct alignas(128) Line {
    std::atomic<std::uint64_t> arrived;
  };
  void meet() {
    line_[0].arrived.store(++meetings_, std::memory_order_release);
    for (Line* line : lines_)
      while (line->arrived.load(std::memory_order_acquire) < meetings_)
        if (!spins_) ::sched_yield();
  }
  std::size_t cut(int rank) const {
    return rank == world_.size() ? count_ : count_ * std::size_t(rank) / std::size_t(world_.size()) & ~std::size_t(15);
  }

  const Group& world_;
  const std::size_t count_;
  const bool spins_ = world_.size() <= ::sysconf(_SC_NPROCESSORS_ONLN);
  bare::Sum* const sum_ = bare::widest_sum();
  std::shared_ptr<float[]> vector_;
  std::shared_ptr<Line[]> line_;
  std::vector<float*> vectors_;
  std::vector<Line*> lines_;
  std::uint64_t meetings_ = 0;
};

// Microseconds of a call, the slowest rank's.
template <class Call>
double time(const Group& world, int calls, Call call) {
  tutti::barrier(world);
  const double begin = seconds_now();
  for (int i = 0; i < calls; ++i) call();
  double spent = (seconds_now() - begin) / calls * 1e6;
  tutti::all_reduce(world, std::span(&spent, 1), tutti::ReduceOp::kMax);
  return spent;
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[std::size_t(part * double(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t(16) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 101;
  if (bytes < 64 || rounds < 1) return std::fputs("usage: paired_all_reduce [BYTES [ROUNDS]]\n", stderr), 2;
  const Group world = tutti::init();
  Pair pair(world, bytes / 64 * 16);
  const int calls = int(std::clamp<std::size_t>((std::size_t(8) << 20) / bytes, 2, 1000));
  std::vector<double> ours, bare, ratios;
  for (int round = -2; round < rounds; ++round) {
    double us = 0, loop = 0;
    const auto call_ours = [&] { us = time(world, calls, [&] { pair.ours(); }); };
    const auto call_bare = [&] { loop = time(world, calls, [&] { pair.bare(); }); };
    if (round % 2)
      call_ours(), call_bare();
    else
      call_bare(), call_ours();
    if (round < 0) continue;  // the first touch
    ours.push_back(us), bare.push_back(loop), ratios.push_back(loop / us);
  }
  if (world.rank() == 0)
    std::printf(
        "all_reduce of %zu bytes on %d ranks: %.1f us, the bare loop %.1f us; bare / ours in %d rounds: median %.3f, "
        "quartiles %.3f to %.3f\n",
        bytes, world.size(), quantile(ours, 0.5), quantile(bare, 0.5), rounds, quantile(ratios, 0.5),
        quantile(ratios, 0.25), quantile(ratios, 0.75));
}
