#include "tutti/comm/planned_calls.h"

#include <gtest/gtest.h>

#include "tutti/transport/inproc/inproc_link.h"

namespace tutti {
namespace {

// Two ranks that take turns on this thread.
class Pair : public testing::Test {
 protected:
  Pair() {
    for (int rank = 0; rank < 2; ++rank) {
      for (auto& link : mesh_[rank]) rows_[rank].push_back(link.get());
      calls_[rank] = std::make_unique<PlannedCalls>(rows_[rank], rank, hosts_, selector_);
    }
  }

  // The sum of both ranks' vectors of ones and twos.
  void sum(std::size_t count, std::uint64_t sequence) {
    std::vector<float> values[2] = {std::vector<float>(count, 1), std::vector<float>(count, 2)};
    Operation* operations[2];
    for (int rank = 0; rank < 2; ++rank) {
      const Request request{.kind = Kind::kAllReduce,
                            .dtype = DType::kF32,
                            .in = values[rank].data(),
                            .out = values[rank].data(),
                            .count = count};
      operations[rank] = calls_[rank]->start(request, sequence).or_throw();
    }
    bool done[2] = {};
    for (int turn = 0; turn < 1'000'000 && !(done[0] && done[1]); ++turn)
      for (int rank = 0; rank < 2; ++rank)
        if (!done[rank]) done[rank] = operations[rank]->step().or_throw() == Progress::kDone;
    for (const auto& of_rank : values) EXPECT_EQ(of_rank, std::vector<float>(count, 3)) << count;
  }

  std::vector<std::vector<std::unique_ptr<Link>>> mesh_ = make_inproc_mesh(2, {}, 64 << 10);
  std::vector<Link*> rows_[2];
  const Hosts hosts_ = Hosts::of_sizes(std::vector<int>{1, 1});
  const Selector selector_{hosts_, Network{}, ""};
  std::unique_ptr<PlannedCalls> calls_[2];
};

TEST_F(Pair, TheSameCallAgainIsPlannedOnce) {
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) sum(sequence % 2 ? 3 : 100'000, sequence);
  EXPECT_EQ(calls_[0]->kept(), 2u);
}

TEST_F(Pair, WhatIsKeptIsBounded) {
  for (std::uint64_t sequence = 1; sequence <= 3 * PlannedCalls::kKept; ++sequence) sum(sequence, sequence);
  EXPECT_EQ(calls_[0]->kept(), PlannedCalls::kKept);
  sum(1, 1000);  // the oldest was forgotten, and is planned again
  EXPECT_EQ(calls_[0]->kept(), PlannedCalls::kKept);
}

}  // namespace
}  // namespace tutti
