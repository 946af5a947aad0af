// What init() says where cuda:nccl was asked for and cannot be had, on every rank, and calls that are not for the
// rank's GPU.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cuda/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

// A world that does not come into being: the sentence of each rank.
std::vector<std::string> refusals(WorldOptions options, int size = 2) {
  std::vector<std::string> texts;
  for (const Outcome& outcome : run_processes(
           size, [](Group&) {}, options))
    texts.push_back(outcome.error);
  return texts;
}

void expect_on_both(const WorldOptions& options, const std::string& words) {
  for (const std::string& text : refusals(options)) {
    EXPECT_THAT(text, HasSubstr("opening the engine nccl on group world, rank "));
    EXPECT_THAT(text, HasSubstr(words));
  }
}

// A folder with the double of the runtime, and no NCCL.
class OnlyTheRuntime {
 public:
  OnlyTheRuntime() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-cuda-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::filesystem::create_symlink(TUTTI_FAKE_CUDA "/libcudart.so.13", folder_ + "/libcudart.so.13");
  }
  ~OnlyTheRuntime() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

TEST(NcclRefusals, NoAdapter) {
  expect_on_both(with_gpus(kNccl, {{"TUTTI_ENGINE_PATH", "/nowhere"}}),
                 "the engine nccl is not installed: there is no libtutti_nccl.so in /nowhere");
}

TEST(NcclRefusals, NoNccl) {
  const OnlyTheRuntime only;
  expect_on_both(
      with_gpus(kNccl, {{"TUTTI_CUDA_PATH", only.folder()}}),
      "NCCL cannot be loaded: tried libnccl.so.2, libnccl.so in " + only.folder() + " (TUTTI_CUDA_PATH) (hint: ");
}

TEST(NcclRefusals, TooOldAnNccl) {
  expect_on_both(with_gpus(kNccl, {{"FAKE_NCCL_VERSION", "21201"}}),
                 "the NCCL found is version 2.12.1, expected 2.14.0 or later");
}

TEST(NcclRefusals, NoRuntimeNoDriverNoGpu) {
  expect_on_both(with_gpus(kNccl, {{"TUTTI_CUDA_PATH", "/nowhere"}}), "the CUDA runtime cannot be loaded: tried ");
  expect_on_both(with_gpus(kNccl, {{"FAKE_CUDA_ERROR", "35"}}), "CUDA finds no NVIDIA driver");
  expect_on_both(with_gpus(kNccl, {{"FAKE_CUDA_DEVICES", "0"}}), "CUDA finds no GPU");
  expect_on_both(with_gpus(kNccl, {{"CUDA_VISIBLE_DEVICES", "-1"}}),
                 "the engine nccl needs a GPU, and no GPU is visible to this rank");
  expect_on_both(with_gpus(kNccl, {{"TUTTI_DEVICE", "cpu"}}), "TUTTI_DEVICE is \"cpu\", but the engine nccl needs");
  expect_on_both(with_gpus(kNccl, {{"TUTTI_DEVICE", "cuda:9"}}), "there is no device cuda:9, 8 are visible");
}

// One rank that lacks something is named on the others, at once.
TEST(NcclRefusals, OneRankCannot) {
  auto options = with_gpus(kNccl);
  options.environment_of = [](int rank) {
    return rank == 1 ? std::map<std::string, std::string>{{"FAKE_CUDA_ERROR", "35"}}
                     : std::map<std::string, std::string>{};
  };
  const auto texts = refusals(options, 3);
  EXPECT_THAT(texts[0], HasSubstr("rank 0: rank 1 cannot take part: Unsupported: CUDA finds no NVIDIA driver"));
  EXPECT_THAT(texts[1], HasSubstr("rank 1: CUDA finds no NVIDIA driver"));
  EXPECT_THAT(texts[2], HasSubstr("rank 2: rank 1 cannot take part: Unsupported: CUDA finds no NVIDIA driver"));
}

TEST(NcclRefusals, AnotherVersionOnOneRank) {
  auto options = with_gpus(kNccl, {{"FAKE_NCCL_VERSION", "22703"}});
  options.environment_of = [](int rank) {
    return std::map<std::string, std::string>{{"FAKE_NCCL_VERSION", rank == 1 ? "22705" : "22703"}};
  };
  for (const std::string& text : refusals(options, 3))
    EXPECT_THAT(text, HasSubstr("the ranks have NCCLs of different versions: ranks 0, 2 have 2.27.3, rank 1 has 2.27.5 "
                                "(hint: install the same one on all hosts"));
}

TEST(NcclRefusals, BuffersOfAnotherGpu) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const int other = 5;
        const Status status = world.run({.kind = Kind::kAllReduce,
                                         .dtype = DType::kF32,
                                         .in = reinterpret_cast<void*>(64),
                                         .out = reinterpret_cast<void*>(64),
                                         .count = 1,
                                         .device = other});
        check(!status.ok(), "a call on another GPU");
        expect_words(to_string(status.error()), "the buffers are on cuda:5, but the engine nccl was opened on cuda:" +
                                                    std::to_string(world.rank()) + " for this rank");
        check(all_reduce(world, 1) == 2, "the group is as good as before");
      },
      with_gpus(kNccl));
  EXPECT_EQ(describe(outcomes), "");
}

// A world of one needs no NCCL.
TEST(NcclRefusals, NotInAWorldOfOne) {
  EXPECT_EQ(describe(run_processes(
                1, [](Group& world) { check(all_reduce(world, 1) == 1, "one"); },
                with_gpus(kNccl, {{"TUTTI_CUDA_PATH", "/nowhere"}}))),
            "");
}

}  // namespace
}  // namespace tutti::test
