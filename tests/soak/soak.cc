// Random verbs of random types, ops and sizes on random groups, blocking and several at once, from the heap and from
// private memory, each result checked, for as long as one likes. All ranks draw the same numbers. At the end: no wrong
// element, no descriptor more than at first, and no thread or memory more than after the first quarter.
//
//   tutti run -n 4 soak --seconds 600 --seed 7
//
// Exit codes: 0 right to the end; 1 wrong, grown or failed; 2 wrong usage.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "bench/collectives/operation.h"
#include "tutti/base/clock.h"
#include "tutti/base/deadline.h"
#include "tutti/base/log.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/runtime/init.h"

namespace {

using tutti::Group;
using tutti::bench::Exercise;

constexpr std::size_t kMostBytes = 2 << 20;
constexpr int kMostAtOnce = 4;
// None of them is the world, which could not be left: so all that a group keeps can be told from a leak.
constexpr int kGroups = 4;
// Bytes that a process may grow by after the first quarter: caches of the allocator, stacks.
#if TUTTI_ASAN
constexpr long kResidentSlack = 384 << 20;  // and 256 MiB that were freed, which ASan keeps to see them used
#elif TUTTI_TSAN
constexpr long kResidentSlack = 160 << 20;  // and TSan's shadow of them, four times as large
#else
constexpr long kResidentSlack = 32 << 20;
#endif
constexpr long kHeapSlack = 1 << 20;     // what is allocated and not freed, when all groups are left
constexpr long kSharedSlack = 16 << 20;  // holes in the heap that ranks share
// Seconds. A rank closes a silent connection after 2 to 4 s, and the stranger makes another within a second. Moments
// without any are short, so a check may miss several of them.
constexpr double kStrangersPatience = 60;

struct Footprint {
  long resident = 0;  // bytes, of this process alone
  long heap = 0;      // of them, allocated and not freed; 0: the allocator does not tell
  long shared = 0;    // bytes of the heap that ranks share
  long descriptors = 0, threads = 0;
};

long entries(const char* folder) {
  long count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += !entry.path().empty();
  return count;
}

Footprint footprint(const Group& world) {
  Footprint now;
  ::malloc_trim(0);  // pages that the allocator keeps are no leak
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0, of_files = 0;  // pages; memory that ranks share counts as files, as `shared` below
  statm >> total >> resident >> of_files;
  now.resident = (resident - of_files) * 4096;
#if !TUTTI_ASAN && !TUTTI_TSAN
  const auto allocated = ::mallinfo2();
  now.heap = long(allocated.uordblks + allocated.hblkhd);
#endif
  if (const auto& host = world.state().process().host) now.shared = long(host->arena().size());
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  return now;
}

// One of the buffers of a call that is under way.
struct Memory {
  std::shared_ptr<std::byte> heap;
  std::vector<std::byte> own = std::vector<std::byte>(kMostBytes);
};

class Soak {
 public:
  Soak(const Group& world, std::uint64_t seed) : world_(world), random_(seed) {
    for (auto& pair : memory_)
      for (Memory& memory : pair) memory.heap = world.allocate(kMostBytes).or_throw();
    descriptors_ = footprint(world).descriptors;
    // A monitored barrier keeps a connection to the store for its group, which would count as a leak.
    for (const auto& operation : tutti::bench::operations())
      if (operation.form != tutti::bench::Form::kMonitored) operations_.push_back(&operation);
    for (int k = 0; k < kGroups; ++k) groups_.push_back(another_group(k));
  }

  void run(double seconds) {
    const auto begin = tutti::now();
    double told = 0;
    for (bool warm = false;; ++turns_) {
      if (turns_ % 16 == 0) {
        double passed = tutti::seconds_since(begin);
        tutti::broadcast(world_, std::span(&passed, 1), 0);
        if (passed > seconds / 4 && !warm) {
          warm = true, warm_ = without_groups();
          for (int k = 0; k < kGroups; ++k) groups_[std::size_t(k)] = another_group(k);
        }
        if (world_.rank() == 0 && passed - told > 5)
          told = passed, fmt::print(stderr, "soak: {:.0f} of {:.0f} s, {} calls right\n", passed, seconds, calls_);
        if (passed > seconds) break;
      }
      if (turns_ % 200 == 199) {
        const auto k = int(draw(kGroups));
        groups_[std::size_t(k)] = another_group(k);
      }
      turn();
    }
    check_footprint();
    if (world_.rank() == 0) fmt::print("soak: {} calls in {} turns, all right\n", calls_, turns_);
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }

  // The first has all ranks.
  Group another_group(int number) {
    if (number == 0) return world_.split(0, world_.rank()).or_throw();
    const int parts = 1 + int(draw(3)), way = int(draw(2)), rank = world_.rank();
    const int color = way == 0 ? rank % parts : rank * parts / world_.size();
    return world_.split(color, draw(2) == 0 ? rank : -rank).or_throw();
  }

  // One call, or several that are under way together.
  void turn() {
    struct Call {
      const Group* group;
      std::unique_ptr<Exercise> exercise;
      tutti::Work work;
      std::string words;
    };
    std::vector<Call> calls;
    const int count = draw(3) == 0 ? 1 + int(draw(kMostAtOnce)) : 1;
    for (int k = 0; k < count; ++k) {
      const Group& group = groups_[draw(kGroups)];
      const auto& operation = *operations_[draw(operations_.size())];
      const tutti::DType dtype = tutti::kDTypes[draw(std::size(tutti::kDTypes))];
      tutti::ReduceOp op = tutti::kReduceOps[draw(std::size(tutti::kReduceOps))];
      const bool heap[2] = {draw(2) == 0, draw(2) == 0};
      const auto bytes = std::size_t(std::exp2(double(draw(1000)) / 1000 * std::log2(double(kMostBytes))));
      if (!operation.reduces() || !tutti::comm::check_reduction(dtype, op).ok() || op == tutti::ReduceOp::kProduct)
        op = tutti::ReduceOp::kSum;
      std::byte* buffers[2];
      for (int b = 0; b < 2; ++b) {
        Memory& memory = memory_[std::size_t(k)][std::size_t(b)];
        buffers[b] = heap[b] ? memory.heap.get() : memory.own.data();
      }
      calls.push_back({&group,
                       tutti::bench::make_exercise(group, operation, {dtype, op, bytes}, {buffers[0], buffers[1]}),
                       {},
                       {}});
      calls.back().words =
          fmt::format("turn {}, call {}: {} {} {} of {} bytes on {}, {} ranks", turns_, k, operation.name,
                      tutti::name(dtype), tutti::name(op), bytes, group.name(), group.size());
      calls.back().exercise->write_pattern();
    }
    if (count == 1) {
      calls[0].exercise->call();
    } else {
      for (Call& call : calls) call.work = call.exercise->start();
      for (Call& call : calls) call.work.get();
    }
    for (const Call& call : calls) {
      if (const std::size_t wrong = call.exercise->count_wrong(); wrong > 0)
        throw std::runtime_error(fmt::format("{} wrong elements after {} (of {} at once)", wrong, call.words, count));
      ++calls_;
    }
  }

  // What differs from group to group is left out, and so are connections of strangers, which a rank closes in time.
  Footprint without_groups() {
    for (Group& group : groups_) group = Group();
    const auto deadline = tutti::Deadline::after_seconds(kStrangersPatience);
    Footprint now = footprint(world_);
    while (now.descriptors > descriptors_ && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      now = footprint(world_);
    }
    if (now.descriptors != descriptors_)
      throw std::runtime_error(fmt::format("{} descriptors are open, {} at first", now.descriptors, descriptors_));
    return now;
  }

  void check_footprint() {
    const Footprint end = without_groups();
    const auto grew = [](const char* what, long now, long then, long slack) {
      if (now > then + slack)
        throw std::runtime_error(fmt::format("{} KiB {}, {} after the first quarter", now >> 10, what, then >> 10));
    };
    grew("are resident", end.resident, warm_.resident, kResidentSlack);
    grew("are allocated", end.heap, warm_.heap, kHeapSlack);
    grew("of shared memory are in use", end.shared, warm_.shared, kSharedSlack);
    if (end.threads != warm_.threads)
      throw std::runtime_error(fmt::format("{} threads, {} after the first quarter", end.threads, warm_.threads));
    fmt::print(stderr, "soak: rank {}: {} KiB resident ({:+}), {} KiB allocated ({:+}), {} KiB shared ({:+})\n",
               world_.rank(), end.resident >> 10, (end.resident - warm_.resident) >> 10, end.heap >> 10,
               (end.heap - warm_.heap) >> 10, end.shared >> 10, (end.shared - warm_.shared) >> 10);
  }

  const Group& world_;
  std::mt19937_64 random_;
  std::array<std::array<Memory, 2>, kMostAtOnce> memory_;
  std::vector<Group> groups_;
  std::vector<const tutti::bench::Operation*> operations_;
  long descriptors_ = 0;  // before there were groups
  Footprint warm_;        // after the first quarter
  long turns_ = 0, calls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 600;
  std::uint64_t seed = 1;
  CLI::App app("Runs random collectives and checks each result.", "soak");
  tutti::cli::set_help(app, "");
  app.add_option("--seconds", seconds, "seconds to run (600)");
  app.add_option("--seed", seed, "seed of the random numbers, the same on all ranks (1)");
  if (const auto code = tutti::cli::parse(app, {argv + 1, argv + argc})) return *code;
  try {
    const Group world = tutti::init();
    Soak(world, seed).run(seconds);
    return 0;
  } catch (const std::exception& failure) {
    tutti::log::error(failure.what());
    return 1;
  }
}
