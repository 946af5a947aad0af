// DLRM and fully sharded models on GPUs: every case that tests/parity compares on the CPU. The GPUs are real ones with
// TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/cuda/worlds.h"
#include "tests/parity/dlrm_cases.h"
#include "tests/parity/fully_sharded_cases.h"

namespace tutti::test {
namespace {

class ParityOnGpus : public ::testing::TestWithParam<int> {};

// `act` throws what is wrong with a case.
template <class Cases, class Act>
void for_each_case(const Cases& cases, const Act& act) {
  for (const auto& one : cases) {
    try {
      act(one);
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string(one.name) + ": " + error.what());
    }
  }
}

TEST_P(ParityOnGpus, DlrmEqualsOneProcessOnTheCpu) {
  const auto body = [](Group& world) {
    at::set_num_threads(1);
    for_each_case(dlrm::kCases, [&](const dlrm::Case& one) {
      const dlrm::Options options = dlrm::options_of(one);
      dlrm::check_same(dlrm::train(world, options, at::Device(world.device())), dlrm::train({}, options), 1e-10);
    });
  };
  EXPECT_EQ(describe(run_processes(GetParam(), body, with_gpus(kStaged))), "");
}

// Norms are added up in another order.
TEST_P(ParityOnGpus, FullyShardedEqualsDataParallel) {
  const auto body = [](Group& world) {
    for_each_case(parity::kCases, [&](const parity::Case& one) {
      if (one.ranks == world.size() && one.world.transport.empty())
        parity::check_equals_data_parallel(world, one, at::Device(world.device()), 1e-6);
    });
  };
  EXPECT_EQ(describe(run_processes(GetParam(), body, with_gpus(kStaged))), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParityOnGpus, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace tutti::test
