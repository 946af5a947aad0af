// Random verbs of random types, ops and sizes on random groups, blocking and several at once, from the heap and from
// private memory, each result checked, for as long as one likes. All ranks draw the same numbers. At the end: no wrong
// element, no descriptor more than at first, no memory more than after the first tenth.
//
//   tutti run -n 4 soak --seconds 600 --seed 7
//
// Exit codes: 0 right to the end; 1 wrong, grown or failed; 2 wrong usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "bench/collectives/operation.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/runtime/init.h"

namespace {

using tutti::Group;
using tutti::bench::Exercise;

constexpr std::size_t kMostBytes = 2 << 20;
constexpr int kMostAtOnce = 4;
constexpr int kSubGroups = 3;
// Bytes that a process may grow by: caches of the allocator, stacks.
#if defined(__SANITIZE_ADDRESS__)
constexpr long kResidentSlack = 384 << 20;  // and 256 MiB that were freed, which ASan keeps to see them used
#else
constexpr long kResidentSlack = 64 << 20;
#endif

struct Footprint {
  long resident = 0, descriptors = 0;
};

Footprint footprint() {
  Footprint now;
  std::ifstream statm("/proc/self/statm");
  long total = 0;
  statm >> total >> now.resident;
  now.resident *= 4096;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    now.descriptors += !entry.path().empty();
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
    descriptors_ = footprint().descriptors;
    // A monitored barrier keeps a connection to the store for its group, which would count as a leak.
    for (const auto& operation : tutti::bench::operations())
      if (operation.form != tutti::bench::Form::kMonitored) operations_.push_back(&operation);
    for (int k = 0; k < kSubGroups; ++k) groups_.push_back(another_group());
  }

  void run(double seconds) {
    const auto begin = tutti::now();
    double told = 0;
    for (bool warm = false;; ++turns_) {
      if (turns_ % 16 == 0) {
        double passed = tutti::seconds_since(begin);
        tutti::broadcast(world_, std::span(&passed, 1), 0);
        if (passed > seconds / 10 && !warm) warm = true, warm_resident_ = footprint().resident;
        if (world_.rank() == 0 && passed - told > 5)
          told = passed, fmt::print(stderr, "soak: {:.0f} of {:.0f} s, {} calls right\n", passed, seconds, calls_);
        if (passed > seconds) break;
      }
      if (turns_ % 200 == 199) groups_[draw(kSubGroups)] = another_group();
      turn();
    }
    check_footprint();
    if (world_.rank() == 0) fmt::print("soak: {} calls in {} turns, all right\n", calls_, turns_);
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }

  Group another_group() {
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
      const std::size_t which = draw(kSubGroups + 1);
      const Group& group = which == kSubGroups ? world_ : groups_[which];
      const auto& operation = *operations_[draw(operations_.size())];
      const tutti::DType dtype = tutti::kDTypes[draw(std::size(tutti::kDTypes))];
      tutti::ReduceOp op = tutti::kReduceOps[draw(std::size(tutti::kReduceOps))];
      const bool heap[2] = {draw(2) == 0, draw(2) == 0};
      const auto bytes = std::size_t(std::exp2(double(draw(1000)) / 1000 * std::log2(double(kMostBytes))));
      if (!operation.reduces() || !tutti::check_reduction(dtype, op).ok() || op == tutti::ReduceOp::kProduct)
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

  void check_footprint() {
    const long resident = footprint().resident;
    groups_.clear();
    const long descriptors = footprint().descriptors;
    if (descriptors != descriptors_)
      throw std::runtime_error(fmt::format("{} descriptors are open, {} at first", descriptors, descriptors_));
    if (resident > warm_resident_ + kResidentSlack)
      throw std::runtime_error(
          fmt::format("{} MiB are resident, {} after the first tenth", resident >> 20, warm_resident_ >> 20));
  }

  const Group& world_;
  std::mt19937_64 random_;
  std::array<std::array<Memory, 2>, kMostAtOnce> memory_;
  std::vector<Group> groups_;
  std::vector<const tutti::bench::Operation*> operations_;
  long descriptors_ = 0, warm_resident_ = 0;
  long turns_ = 0, calls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 600;
  std::uint64_t seed = 1;
  CLI::App app("Random collectives, each result checked.", "soak");
  app.add_option("--seconds", seconds, "how long (600)");
  app.add_option("--seed", seed, "of the random numbers (1); the same on all ranks");
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
