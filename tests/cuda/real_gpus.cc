// main() of the tests that run on the GPUs of this machine. Where no GPU can be used it prints why and returns 77,
// which ctest shows as not run.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/cuda/worlds.h"

namespace tutti::test {
namespace {

constexpr int kNotRun = 77;

// Why no GPU can be used; empty if one can. In a process of its own: one that has used CUDA must not be forked.
std::string trouble() {
  const auto touch = [](Group& world) { DeviceMemory(device_of(world), 1); };
  const Outcome outcome = run_processes(1, touch, with_gpus(kStaged)).front();
  if (outcome.ok()) return {};
  return outcome.error.empty() ? "a rank ended without an error" : outcome.error;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const std::string trouble = tutti::test::trouble(); !trouble.empty()) {
    std::printf("SKIP: no GPU can be used here: %s\n", trouble.c_str());
    return tutti::test::kNotRun;
  }
  return RUN_ALL_TESTS();
}
