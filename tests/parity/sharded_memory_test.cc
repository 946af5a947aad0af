// What sharded training takes of memory, counted where the system counts it: the pages of this process that are its
// own, and those of the segments that the ranks share, each once.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/harness/ranks.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/caching_allocator.h"

namespace tutti {
namespace {

// Bytes of anonymous memory of this process.
double own_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "RssAnon:") continue;
    double kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

// Bytes of all memory files that this process knows: the arenas of all ranks.
double shared_bytes() {
  double bytes = 0;
  std::set<ino_t> seen;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry, ignored).string().find("memfd:") == std::string::npos) continue;
    struct stat facts {};
    if (::stat(entry.path().c_str(), &facts) == 0 && seen.insert(facts.st_ino).second)
      bytes += double(facts.st_blocks) * 512;
  }
  return bytes;
}

// The most that a rank had, above where it began.
class Peak {
 public:
  explicit Peak(const Group& world) : world_(world), own_(own_bytes()), shared_(shared_bytes()) {}
  void look() { peak_ = std::max(peak_, own_bytes() - own_ + (shared_bytes() - shared_) / world_.size()); }
  double bytes() const { return all_reduce(world_, peak_, ReduceOp::kMax); }

 private:
  const Group& world_;
  double own_, shared_, peak_ = 0;
};

constexpr std::int64_t kWide = 1150, kNarrow = 100;
constexpr int kWideLayers = 8, kNarrowLayers = 100;  // 10.6 million parameters in large weights, 1 in small ones
constexpr double kLargestGradient = kWide * kWide * 4;
constexpr std::size_t kBucket = std::size_t(4) << 20;
constexpr double kSmallGradients = kNarrowLayers * kNarrow * kNarrow * 4.0;  // packed, and kept in their buckets
// Of batches, activations, buckets that are being filled and tables of the runtime, none of which grows with the model.
constexpr double kFixed = 4 << 20;

// Without biases in the wide layers; sizes that no size class meets.
torch::nn::Sequential make_model() {
  torch::nn::Sequential model;
  for (int i = 0; i < kWideLayers; ++i)
    model->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWide, kWide).bias(false)));
  model->push_back(torch::nn::Linear(kWide, kNarrow));
  for (int i = 0; i < kNarrowLayers; ++i) model->push_back(torch::nn::Linear(kNarrow, kNarrow));
  return model;
}

struct Taken {
  double bytes = 0, parameters = 0;
};

Taken train(const Group& world, int stage) {
  at::set_num_threads(1);
  const auto x = at::ones({2, kWide});
  const HeapTensors heap(world);
  Peak peak(world);
  auto model = make_model();
  double parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += double(parameter.numel());
  DataParallel ddp(model.ptr(), world, {.bucket_cap_mb = mebibytes(kBucket)});
  ShardedOptimizer optimizer(ddp, AdamOptions{}, {.stage = stage});
  for (int step = 0; step < 3; ++step) {
    ddp.forward(x).square().mean().backward();
    peak.look();
    optimizer.step();
    peak.look();
    optimizer.zero_grad();
  }
  return {peak.bytes(), parameters};
}

// Above what there was before the model, while it trains; `share`: one copy of the weights.
Taken train_fully_sharded(const Group& world, bool share) {
  at::set_num_threads(1);
  const auto x = at::ones({2, kWide});
  const HeapTensors heap(world);
  Peak peak(world);
  auto model = make_model();
  double parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += double(parameter.numel());
  FullySharded sharded(model, world, {.share_on_host = share});
  ShardedOptimizer optimizer(sharded, AdamOptions{});
  for (int step = 0; step < 3; ++step) {
    sharded.forward(x).square().mean().backward();
    peak.look();
    optimizer.step();
    peak.look();
    optimizer.zero_grad();
  }
  return {peak.bytes(), parameters};
}

class Memory : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
#if TUTTI_ASAN || TUTTI_TSAN
    GTEST_SKIP() << "sanitizers have memory of their own, and keep what is freed; the preset release runs this";
#endif
  }
};
INSTANTIATE_TEST_SUITE_P(, Memory, testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param) + "_ranks"; });

TEST_P(Memory, OfStageOneIsWeightsGradientsAndAPartOfTheState) {
  const auto outcomes = test::run_processes(GetParam(), [](Group& world) {
    const auto taken = train(world, 1);
    const double allowed = 1.05 * (8 + 8.0 / world.size()) * taken.parameters + kLargestGradient + kFixed;
    if (world.rank() == 0) std::printf("%.2f bytes a parameter\n", taken.bytes / taken.parameters);
    test::check(taken.bytes <= allowed, taken.bytes / taken.parameters, " bytes a parameter, allowed ",
                allowed / taken.parameters);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_P(Memory, OfStageTwoIsWeightsAndAPartOfGradientsAndState) {
  const auto outcomes = test::run_processes(GetParam(), [](Group& world) {
    const auto taken = train(world, 2);
    const double bucket = kBucket + kLargestGradient;  // the last gradient in it overshoots
    const double allowed =
        1.05 * (4 + 12.0 / world.size()) * taken.parameters + kLargestGradient + bucket + kSmallGradients + kFixed;
    if (world.rank() == 0) std::printf("%.2f bytes a parameter\n", taken.bytes / taken.parameters);
    test::check(taken.bytes <= allowed, taken.bytes / taken.parameters, " bytes a parameter, allowed ",
                allowed / taken.parameters);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_P(Memory, OfStageThreeIsAPartOfEverything) {
  for (const bool share : {true, false}) {
    const auto outcomes = test::run_processes(GetParam(), [share](Group& world) {
      const auto taken = train_fully_sharded(world, share);
      // Blocks that are there whole, however many the model has. Shared: gradients, as they come and packed. Gathered:
      // weights of the one that runs, the one before and the one after it; gradients as they come, as they are packed
      // and of three that are on their way.
      const double allowed =
          1.05 * 16 / world.size() * taken.parameters + (share ? 4 : 8) * kLargestGradient + kSmallGradients + kFixed;
      if (world.rank() == 0) std::printf("%.2f bytes a parameter\n", taken.bytes / taken.parameters);
      test::check(taken.bytes <= allowed, taken.bytes / taken.parameters, " bytes a parameter, allowed ",
                  allowed / taken.parameters);
    });
    EXPECT_EQ(test::describe(outcomes), "") << (share ? "one copy" : "gathered");
  }
}

}  // namespace
}  // namespace tutti
