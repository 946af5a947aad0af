// The suite of groups over real GPUs. "gpus": worlds that have a GPU for each rank by NCCL, larger ones by copies
// between GPUs; without NCCL staged. "gpus_ipc": by copies between GPUs. Where there is no GPU it says so and returns
// 77, which ctest shows as not run.
#include <cstdio>

#include "tests/conformance/group_conformance.h"
#include "tests/harness/device_memory.h"

namespace tutti::test {
namespace {

constexpr int kNotRun = 77;
std::string the_engine;  // set by main()

std::vector<Outcome> run_by(const std::string& engine, int size, const RankBody& body) {
  return run_processes(size, body, {.timeout = 120, .watchdog = 600, .environment = {{"TUTTI_ENGINE", engine}}});
}
std::vector<Outcome> run_on_gpus(int size, const RankBody& body) { return run_by(the_engine, size, body); }
std::vector<Outcome> run_by_ipc(int size, const RankBody& body) { return run_by("cpu:tutti,cuda:ipc", size, body); }

INSTANTIATE_TEST_SUITE_P(Backends, GroupSuite,
                         ::testing::Values(GroupBackend{"gpus", run_on_gpus, false, run_on_device},
                                           GroupBackend{"gpus_ipc", run_by_ipc, false, run_on_device}),
                         [](const auto& info) { return info.param.name; });

// Why a world of this engine cannot use GPUs; empty if it can. In processes of its own: one that has used CUDA must not
// be forked.
std::string trouble_with(const std::string& engine) {
  the_engine = engine;
  const auto touch = [](Group& world) { DeviceMemory(device_of(world), 1); };
  for (const Outcome& outcome : run_on_gpus(2, touch))
    if (!outcome.ok()) return outcome.error.empty() ? "a rank ended without an error" : outcome.error;
  return {};
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using namespace tutti::test;
  if (const std::string trouble = trouble_with("cpu:tutti,cuda:staged"); !trouble.empty()) {
    std::printf("SKIP: no GPU can be used here: %s\n", trouble.c_str());
    return kNotRun;
  }
  if (const std::string trouble = trouble_with("cpu:tutti,cuda:nccl"); !trouble.empty()) {
    std::printf("without NCCL, staged only: %s\n", trouble.c_str());
    the_engine = "cpu:tutti,cuda:staged";
  }
  return RUN_ALL_TESTS();
}
