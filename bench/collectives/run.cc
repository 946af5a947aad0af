// Join, pin, allocate once for the largest size, then one operation after another, one size after another.
#include "bench/collectives/run.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "bench/collectives/groups.h"
#include "bench/collectives/limits.h"
#include "bench/collectives/report.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/runtime/init.h"

namespace tutti::bench {
namespace {

// Binds the calling thread to one of the cores that it may use, if there is one for each rank of the machine: what
// mpirun does. The library's own thread stays free. Whether it did.
bool pin(const Group& world) {
  const comm::Process& process = world.state().process();
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
  void* const own = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!own)
    throw Exception(Error{.code = Code::kLimit,
                          .detail = "the system gives rank " + std::to_string(world.rank()) + " no " +
                                    bytes_text(bytes) + " of memory for a buffer",
                          .hint = "a smaller --max"});
  return {static_cast<std::byte*>(own), std::free};
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

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        world_(init({.transport = options.transport, .engine = options.engine})),
        progress_(world_.rank() == 0 && options.progress) {
    const auto lists = groups_of(options.groups, world_.size()).or_throw();
    group_ =
        lists.size() == 1 && int(lists[0].size()) == world_.size() ? world_ : world_.new_subgroups(lists).or_throw();
    // Only now: a rank that is bound to one core before it joins would believe that the machine has no more.
    const bool pinned = all_reduce(world_, std::int32_t(options.pin && pin(world_)), ReduceOp::kMin) != 0;
    const std::size_t most = options.sizes.back();
    a_ = allocate(world_, options.memory, most), b_ = allocate(world_, options.memory, most);
    const bool on_gpu = options.memory == BenchOptions::Memory::kCuda;
    if (on_gpu) device_ = DeviceBuffers::make(world_, a_.get(), b_.get(), most).or_throw();
    const std::string gpu_engine = world_.state().process().cuda_engine;
    where_ = {.engine = on_gpu && gpu_engine == "nccl" ? gpu_engine : world_.state().engine(),
              .ranks = group_ ? group_.size() : 0,
              .groups = int(lists.size()),
              .hosts = world_.nodes(),
              .dtype = name(options.dtype),
              .op = name(options.op),
              .memory = on_gpu                                          ? "cuda"
                        : options.memory == BenchOptions::Memory::kHeap ? "heap"
                                                                        : "private",
              .rewrite = options.method.rewrite,
              .pinned = pinned};
  }

  // Exit code.
  int run() {
    bool right = true, all = true;
    for (const Operation* operation : options_.operations) {
      if (first() && !options_.json) print(table_head(*operation, where_));
      Figure last;
      std::size_t wrong = 0;
      bool measured = false;
      for (const std::size_t bytes : options_.sizes) {
        const auto figure = figure_of(*operation, bytes);
        if (!figure) continue;
        last = *figure;
        measured = true;
        wrong += last.wrong;
        if (first()) print(options_.json ? json_line(*operation, where_, last) : table_row(*operation, where_, last));
        if (!operation->has_bytes()) break;
      }
      right = right && wrong == 0, all = all && measured;
      if (!measured && first()) tell_not_measured(*operation);
      if (measured && first() && !options_.json) print(verdict(*operation, where_, last, wrong) + "\n");
    }
    if (!right && first())
      fmt::print(stderr, "tutti bench: some results were wrong; \"wrong\" counts their elements\n");
    return !right ? 1 : all || options_.is_started ? 0 : 2;
  }

 private:
  bool first() const { return world_.rank() == 0; }

  // None where the vector would hold no element.
  std::optional<Figure> figure_of(const Operation& operation, std::size_t bytes) {
    std::unique_ptr<Exercise> exercise;
    if (group_)
      exercise =
          make_exercise(group_, operation, {options_.dtype, options_.op, bytes}, {a_.get(), b_.get(), device_.get()});
    // The groups may differ in size: it is measured if any of them has something to measure.
    const bool has_any = exercise && (exercise->bytes() > 0 || !operation.has_bytes());
    if (!all_reduce(world_, std::int32_t(has_any), ReduceOp::kMax)) return std::nullopt;
    Figure figure = measure(world_, exercise.get(), options_.method, [&](int done) {
      progress_.show(operation, bytes, done + 1, options_.method.warm_up + options_.method.rounds);
    });
    progress_.clear();
    if (operation.has_bytes() && bytes >= kLeastForLimit && world_.size() > 1 && !device_)
      figure.limit_us = limit_seconds(operation, bytes) * 1e6;
    return figure;
  }

  // 0: unknown, since the traffic of several groups between hosts depends on where they are.
  double limit_seconds(const Operation& operation, std::size_t bytes) {
    if (where_.hosts > 1) {
      if (where_.groups > 1) return 0;
      if (wire_ == 0) wire_ = wire_speed(world_);
      return least_wire_seconds(operation, bytes, where_.hosts, wire_);
    }
    // On as much memory as the operation has in its hands on a rank.
    const std::size_t half = std::size_t(operation.footprint(where_.ranks) * double(bytes)) / 128 * 64;
    double& speed = memory_[half];
    if (speed == 0) {
      std::fill_n(a_.get(), half, std::byte(0));
      std::fill_n(b_.get(), half, std::byte(0));
      speed = memory_speed(world_, cores_, a_.get(), b_.get(), half);
    }
    return least_memory_seconds(operation, bytes, where_.ranks, where_.groups, speed);
  }

  void tell_not_measured(const Operation& operation) const {
    const std::string elements = operation.splits
                                     ? fmt::format("{} elements of {}, one for each rank", where_.ranks, where_.dtype)
                                     : fmt::format("an element of {}", where_.dtype);
    const std::string why = fmt::format("no size from {} to {} holds {}", bytes_text(options_.sizes.front()),
                                        bytes_text(options_.sizes.back()), elements);
    fmt::print(stderr, "tutti bench: {}: {} was not measured (hint: a larger one)\n", why, operation.name);
    if (options_.json) print(json_not_measured(operation, where_, why));
  }

  const BenchOptions& options_;
  const int cores_ = usable_cores();
  const Group world_;
  Group group_;  // empty: this rank only keeps the others company
  Progress progress_;
  std::shared_ptr<std::byte> a_, b_;
  std::unique_ptr<DeviceBuffers> device_;  // null: the host's memory
  Circumstances where_;
  std::map<std::size_t, double> memory_;  // bytes a second, by the size of the buffers
  double wire_ = 0;                       // likewise
};

}  // namespace

int run_rank(const BenchOptions& options) {
  if (!options.algorithm.empty()) ::setenv("TUTTI_ALGORITHM", options.algorithm.c_str(), 1);
  return Bench(options).run();
}

}  // namespace tutti::bench
