// Join, pin, allocate once for the largest size, then one operation after another, one size after another.
#include "bench/collectives/run.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "bench/collectives/report.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group_state.h"
#include "tutti/runtime/init.h"

namespace tutti::bench {
namespace {

// Below it a call is all waiting, and a memcpy costs nothing to compare with.
constexpr std::size_t kWorthAVerdict = 4096;

// Binds the calling thread to one of the cores that it may use, if there is one for each rank of the machine: what
// mpirun does. The library's own thread stays free. Whether it did.
bool pin(const Group& world) {
  const Process& process = world.state().process();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < process.ranks_on_machine)
    return false;
  int skip = process.world[std::size_t(process.rank)].machine_rank, core = 0;
  while (!CPU_ISSET(core, &allowed) || skip-- > 0) ++core;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(core, &mine);
  return ::sched_setaffinity(0, sizeof mine, &mine) == 0;
}

std::shared_ptr<std::byte> allocate(const Group& world, BenchOptions::Memory memory, std::size_t bytes) {
  if (memory == BenchOptions::Memory::kHeap) return world.allocate(bytes).or_throw();
  return {static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free};
}

class Progress {
 public:
  explicit Progress(bool shown) : shown_(shown) {}
  ~Progress() { clear(); }
  void show(const Operation& operation, std::size_t bytes, int round, int rounds) {
    if (shown_) fmt::print(stderr, "\r\x1b[K{} {}: round {} of {}", operation.name, bytes_text(bytes), round, rounds);
    written_ = shown_;
  }
  void clear() {
    if (written_) fmt::print(stderr, "\r\x1b[K");
    written_ = false;
  }

 private:
  bool shown_, written_ = false;
};

std::string too_small(const Operation& operation, const BenchOptions& options, int ranks) {
  const std::string elements = operation.splits
                                   ? fmt::format("{} elements of {}, one for each rank", ranks, name(options.dtype))
                                   : fmt::format("an element of {}", name(options.dtype));
  return fmt::format("tutti bench: no size from {} to {} holds {}: {} was not measured (hint: a larger --max)\n",
                     bytes_text(options.least), bytes_text(options.most), elements, operation.name);
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

int run_rank(const BenchOptions& options) {
  if (!options.algorithm.empty()) ::setenv("TUTTI_ALGORITHM", options.algorithm.c_str(), 1);
  const Group world = init({.transport = options.transport});
  const bool first = world.rank() == 0;
  // Only now: a rank that is bound to one core before it joins would believe that the machine has no more.
  const bool pinned = all_reduce(world, std::int32_t(options.pin && pin(world)), ReduceOp::kMin) != 0;
  const auto a = allocate(world, options.memory, options.most), b = allocate(world, options.memory, options.most);
  const std::string circumstances = fmt::format("{}, {}, {} memory, ranks {}", name(options.dtype), name(options.op),
                                                options.memory == BenchOptions::Memory::kHeap ? "heap" : "private",
                                                pinned ? "pinned to cores" : "not pinned");
  Progress progress(first && options.progress);
  bool right = true, any = false;
  for (const Operation* operation : options.operations) {
    if (first && !options.json) print(table_head(*operation, world.size(), circumstances));
    Figure last;
    bool measured = false;
    for (const std::size_t bytes : sizes(options.least, options.most)) {
      Exercise exercise(world, *operation, options.dtype, options.op, bytes, a.get(), b.get());
      const bool barrier = operation->kind == Kind::kBarrier;
      if (exercise.bytes() == 0 && !barrier) continue;
      last = measure(world, exercise, options.method, [&](int done) {
        progress.show(*operation, bytes, done + 1, options.method.warm_up + options.method.rounds);
      });
      progress.clear();
      measured = any = true;
      right = right && last.wrong == 0;
      if (first)
        print(options.json ? json_line(*operation, world.size(), last) : table_row(*operation, world.size(), last));
      if (barrier) break;
    }
    if (!measured && first) fmt::print(stderr, "{}", too_small(*operation, options, world.size()));
    if (options.json || last.bytes < kWorthAVerdict || world.size() == 1) continue;
    const double copy = copy_seconds(world, b.get(), a.get(), last.bytes);
    if (first) print(verdict(*operation, last, copy) + "\n");
  }
  if (!right && first) fmt::print(stderr, "tutti bench: some results were wrong; the column \"wrong\" counts them\n");
  if (!any) return 2;
  return right ? 0 : 1;
}

}  // namespace tutti::bench
