// Runs every plan in memory, for all ranks at once. Each turn picks a runnable step at random and moves a few bytes.
// Streams hold so little that a plan which relies on buffering would stall. Elements are int64, and every operation
// adds.
#include "tutti/comm/plans/algorithms.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <numeric>
#include <random>

namespace tutti {
namespace {

using Values = std::vector<std::int64_t>;
constexpr std::size_t kElement = sizeof(std::int64_t);

struct Rank {
  Plan plan;
  Values in, out;  // in place: `in` is empty, and one buffer is a part of the other
  std::vector<std::byte> scratch;
  std::byte* in_base = nullptr;
  std::byte* out_base = nullptr;
  std::vector<std::size_t> moved;  // bytes moved so far, by step
  std::vector<bool> done;
  std::vector<std::byte> partial;  // of an element that a recv_reduce has received in part
};

class Simulation {
 public:
  explicit Simulation(std::vector<Rank> ranks) : ranks_(std::move(ranks)), streams_(ranks_.size() * ranks_.size()) {}

  // Returns the ranks in their final state, or nothing if they stalled.
  std::vector<Rank> run(std::uint32_t seed) {
    std::mt19937 random(seed);
    for (Rank& rank : ranks_) {
      for (const Step& step : rank.plan.steps) most_ = std::max(most_, step.into.bytes / 16);
      rank.scratch.resize(rank.plan.scratch_bytes);
      rank.moved.resize(rank.plan.steps.size());
      rank.done.resize(rank.plan.steps.size());
    }
    for (;;) {
      std::vector<std::pair<int, std::size_t>> ready;
      bool finished = true;
      for (int r = 0; r < int(ranks_.size()); ++r) {
        for (const std::size_t step : ready_steps(ranks_[r])) ready.emplace_back(r, step);
        for (const bool done : ranks_[r].done) finished &= done;
      }
      if (finished) break;
      std::shuffle(ready.begin(), ready.end(), random);
      bool any = false;
      for (const auto& [r, step] : ready) any |= advance(r, step, random);
      if (!any) return {};
    }
    for (const auto& stream : streams_) EXPECT_TRUE(stream.empty()) << "bytes that nobody received";
    return std::move(ranks_);
  }

 private:
  std::size_t most_ = 16;  // the most bytes that a step moves at once

  std::vector<std::size_t> ready_steps(const Rank& rank) const {
    std::vector<std::size_t> ready;
    std::map<std::pair<bool, int>, bool> busy;  // by direction and peer: only the first unfinished step may move
    for (std::size_t i = 0; i < rank.plan.steps.size(); ++i) {
      const Step& step = rank.plan.steps[i];
      if (rank.done[i]) continue;
      if (step.peer >= 0 && std::exchange(busy[{step.kind == StepKind::kSend, step.peer}], true)) continue;
      bool free = true;
      for (const std::uint32_t earlier : rank.plan.dependencies(step)) {
        EXPECT_LT(earlier, i);
        free &= rank.done[earlier];
      }
      if (free) ready.push_back(i);
    }
    return ready;
  }

  static std::byte* at(Rank& rank, const Range& range) {
    std::byte* const bases[] = {rank.in_base, rank.out_base, rank.scratch.data()};
    return bases[int(range.area)] + range.offset;
  }

  static void add(std::byte* into, const std::byte* left, const std::byte* right) {
    std::int64_t a, b;
    std::memcpy(&a, left, kElement);
    std::memcpy(&b, right, kElement);
    a += b;
    std::memcpy(into, &a, kElement);
  }

  bool advance(int r, std::size_t index, std::mt19937& random) {
    Rank& rank = ranks_[r];
    const Step& step = rank.plan.steps[index];
    std::size_t& moved = rank.moved[index];
    const std::size_t before = moved;
    const std::size_t bytes = std::max(step.from.bytes, step.into.bytes);
    const std::size_t some = std::min<std::size_t>(bytes - moved, 1 + random() % most_);
    switch (step.kind) {
      case StepKind::kSend: {
        auto& stream = streams_[r * ranks_.size() + step.peer];
        for (std::size_t i = 0; i < some && stream.size() < most_ - 5; ++i)
          stream.push_back(at(rank, step.from)[moved++]);
        break;
      }
      case StepKind::kRecv: {
        auto& stream = streams_[step.peer * ranks_.size() + r];
        for (std::size_t i = 0; i < some && !stream.empty(); ++i, stream.pop_front())
          at(rank, step.into)[moved++] = stream.front();
        break;
      }
      case StepKind::kRecvReduce: {
        auto& stream = streams_[step.peer * ranks_.size() + r];
        if (bytes - moved < kElement || stream.size() < kElement) break;
        std::byte element[kElement];
        std::copy_n(stream.begin(), kElement, element);
        stream.erase(stream.begin(), stream.begin() + kElement);
        add(at(rank, step.into) + moved, at(rank, step.from) + moved, element);
        moved += kElement;
        break;
      }
      case StepKind::kCopy:
        std::memmove(at(rank, step.into), at(rank, step.from), bytes);
        moved = bytes;
        break;
      case StepKind::kReduce:
        for (; moved < bytes; moved += kElement)
          add(at(rank, step.into) + moved, at(rank, step.into) + moved, at(rank, step.from) + moved);
        break;
    }
    if (moved == bytes) rank.done[index] = true;
    return moved != before || rank.done[index];
  }

  std::vector<Rank> ranks_;
  std::vector<std::deque<std::byte>> streams_;
};

std::int64_t value(int rank, std::size_t i) { return std::int64_t(rank + 1) * 1000003 + std::int64_t(i) * 7919; }
Values values(int rank, std::size_t begin, std::size_t count) {
  Values result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = value(rank, begin + i);
  return result;
}
Values sum(int size, std::size_t begin, std::size_t count) {
  Values result(count);
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) result[i] += value(rank, begin + i);
  }
  return result;
}

constexpr std::int64_t kUntouched = -77;

struct Case {
  int size;
  std::size_t count;
  int root = 0;
  bool in_place = false;
  std::size_t segment = 256 << 10;
  int layout = 0;  // index for hosts_of()
};

constexpr int kLayouts = 6;
Hosts hosts_of(int layout, int size) {
  std::vector<int> hosts(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    const int by_layout[kLayouts] = {0, r, r % 2, r / 3, r > 0, r * r % 5};
    hosts[r] = by_layout[layout];
  }
  return Hosts(hosts);
}

// Runs an algorithm on inputs made by `fill(shape, rank)` and passes each rank to `check`.
template <class Fill, class Check>
void run(Plan (*algorithm)(const Shape&), const Case& c, Fill fill, Check check) {
  SCOPED_TRACE(testing::Message() << "size " << c.size << " count " << c.count << " root " << c.root << " in place "
                                  << c.in_place << " segment " << c.segment << " layout " << c.layout);
  std::vector<Rank> ranks(c.size);
  const Hosts hosts = hosts_of(c.layout, c.size);
  for (int r = 0; r < c.size; ++r) {
    const Shape shape{.rank = r,
                      .size = c.size,
                      .root = c.root,
                      .count = c.count,
                      .element = kElement,
                      .in_place = c.in_place,
                      .segment = c.segment,
                      .hosts = &hosts};
    ranks[r].plan = algorithm(shape);
    fill(shape, ranks[r]);
    if (!ranks[r].in_base) ranks[r].in_base = reinterpret_cast<std::byte*>(ranks[r].in.data());
    if (!ranks[r].out_base) ranks[r].out_base = reinterpret_cast<std::byte*>(ranks[r].out.data());
  }
  auto ended = Simulation(std::move(ranks)).run(std::uint32_t(c.size * 1000 + c.count));
  ASSERT_EQ(int(ended.size()), c.size) << "the plan came to a halt";
  for (int r = 0; r < c.size; ++r) {
    SCOPED_TRACE(testing::Message() << "rank " << r);
    check(r, ended[r]);
  }
}

std::vector<Case> cases(bool every_root) {
  std::vector<Case> result;
  for (const int size : {1, 2, 3, 4, 7, 8, 13}) {
    for (const std::size_t count :
         {std::size_t(0), std::size_t(1), std::size_t(size - 1), std::size_t(size), std::size_t(1001)}) {
      for (const bool in_place : {false, true}) {
        for (int root = 0; root < (every_root && count < 100 ? size : 1); ++root) {
          const int layout = int(result.size() / 2) % kLayouts;
          result.push_back({size, count, root, in_place, 256 << 10, layout});
          result.push_back({size, count, size - 1 - root, in_place, 200, (layout + 3) % kLayouts});
        }
      }
    }
  }
  return result;
}

std::byte* bytes_of(Values& values, std::size_t element = 0) {
  return reinterpret_cast<std::byte*>(values.data() + element);
}

class AllReduce : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(AllReduce, AddsTheVectorsOfAllRanks) {
  for (const Case& c : cases(false)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          rank.out = shape.in_place ? values(shape.rank, 0, c.count) : Values(c.count, kUntouched);
          if (!shape.in_place) rank.in = values(shape.rank, 0, c.count);
          if (shape.in_place) rank.in_base = bytes_of(rank.out);
        },
        [&](int r, Rank& rank) {
          EXPECT_EQ(rank.out, sum(c.size, 0, c.count));
          if (!c.in_place) {
            EXPECT_EQ(rank.in, values(r, 0, c.count)) << "the input was changed";
          }
        });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, AllReduce,
                         testing::Values(all_reduce_ring, all_reduce_recursive_doubling, all_reduce_halving_doubling,
                                         all_reduce_bruck, all_reduce_mesh, all_reduce_two_level));

class Broadcast : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(Broadcast, GivesTheRootsVectorToAll) {
  for (const Case& c : cases(true)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          rank.out = shape.rank == c.root ? values(c.root, 0, c.count) : Values(c.count, kUntouched);
        },
        [&](int, Rank& rank) { EXPECT_EQ(rank.out, values(c.root, 0, c.count)); });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, Broadcast,
                         testing::Values(broadcast_binomial, broadcast_chain, broadcast_van_de_geijn,
                                         broadcast_two_level));

class Reduce : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(Reduce, AddsOnlyOnTheRoot) {
  for (const Case& c : cases(true)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          const bool root = shape.rank == c.root;
          if (root) rank.out = c.in_place ? values(shape.rank, 0, c.count) : Values(c.count, kUntouched);
          if (!root || !c.in_place)
            rank.in = values(shape.rank, 0, c.count);
          else
            rank.in_base = bytes_of(rank.out);
        },
        [&](int r, Rank& rank) {
          if (r == c.root) {
            EXPECT_EQ(rank.out, sum(c.size, 0, c.count));
          }
          if (r != c.root || !c.in_place) {
            EXPECT_EQ(rank.in, values(r, 0, c.count)) << "the input was changed";
          }
        });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, Reduce,
                         testing::Values(reduce_binomial, reduce_chain, reduce_van_de_geijn, reduce_two_level));

class AllGather : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(AllGather, CollectsByRank) {
  for (const Case& c : cases(false)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          rank.out.assign(c.size * c.count, kUntouched);
          const Values own = values(shape.rank, 0, c.count);
          if (c.in_place) {
            std::copy(own.begin(), own.end(), rank.out.begin() + shape.rank * c.count);
            rank.in_base = bytes_of(rank.out, shape.rank * c.count);
          } else {
            rank.in = own;
          }
        },
        [&](int, Rank& rank) {
          for (int from = 0; from < c.size; ++from) {
            EXPECT_EQ(Values(rank.out.begin() + from * c.count, rank.out.begin() + (from + 1) * c.count),
                      values(from, 0, c.count));
          }
        });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, AllGather,
                         testing::Values(all_gather_ring, all_gather_bruck, all_gather_mesh, all_gather_two_level));

class ReduceScatter : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(ReduceScatter, GivesEachRankItsPartOfTheSum) {
  for (const Case& c : cases(false)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          rank.in = values(shape.rank, 0, c.size * c.count);
          if (c.in_place)
            rank.out_base = bytes_of(rank.in, shape.rank * c.count);
          else
            rank.out.assign(c.count, kUntouched);
        },
        [&](int r, Rank& rank) {
          const Values expected = sum(c.size, r * c.count, c.count);
          const auto own = rank.in.begin() + r * c.count;
          EXPECT_EQ(c.in_place ? Values(own, own + c.count) : rank.out, expected);
          if (c.in_place) std::copy_n(values(r, r * c.count, c.count).begin(), c.count, own);
          EXPECT_EQ(rank.in, values(r, 0, c.size * c.count)) << "the input was changed";
        });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, ReduceScatter,
                         testing::Values(reduce_scatter_ring, reduce_scatter_bruck, reduce_scatter_mesh,
                                         reduce_scatter_two_level));

TEST(GatherDirect, CollectsByRankOnTheRoot) {
  for (const Case& c : cases(true)) {
    run(
        gather_direct, c,
        [&](const Shape& shape, Rank& rank) {
          rank.in = values(shape.rank, 0, c.count);
          if (shape.rank != c.root) return;
          rank.out.assign(c.size * c.count, kUntouched);
          if (!c.in_place) return;
          std::copy(rank.in.begin(), rank.in.end(), rank.out.begin() + c.root * c.count);
          rank.in_base = bytes_of(rank.out, c.root * c.count);
        },
        [&](int r, Rank& rank) {
          if (r != c.root) return;
          for (int from = 0; from < c.size; ++from) {
            EXPECT_EQ(Values(rank.out.begin() + from * c.count, rank.out.begin() + (from + 1) * c.count),
                      values(from, 0, c.count));
          }
        });
  }
}

TEST(ScatterDirect, GivesEachRankItsPart) {
  for (const Case& c : cases(true)) {
    run(
        scatter_direct, c,
        [&](const Shape& shape, Rank& rank) {
          const bool root = shape.rank == c.root;
          if (root) rank.in = values(c.root, 0, c.size * c.count);
          rank.out.assign(c.count, kUntouched);
          if (root && c.in_place) rank.out_base = bytes_of(rank.in, c.root * c.count);
        },
        [&](int r, Rank& rank) {
          if (r == c.root) {
            EXPECT_EQ(rank.in, values(c.root, 0, c.size * c.count));
          }
          if (r != c.root || !c.in_place) {
            EXPECT_EQ(rank.out, values(c.root, r * c.count, c.count));
          }
        });
  }
}

class AllToAll : public testing::TestWithParam<Plan (*)(const Shape&)> {};
TEST_P(AllToAll, TransposesEvenParts) {
  for (const Case& c : cases(false)) {
    run(
        GetParam(), c,
        [&](const Shape& shape, Rank& rank) {
          rank.out = c.in_place ? values(shape.rank, 0, c.size * c.count) : Values(c.size * c.count, kUntouched);
          if (c.in_place)
            rank.in_base = bytes_of(rank.out);
          else
            rank.in = values(shape.rank, 0, c.size * c.count);
        },
        [&](int r, Rank& rank) {
          for (int from = 0; from < c.size; ++from) {
            EXPECT_EQ(Values(rank.out.begin() + from * c.count, rank.out.begin() + (from + 1) * c.count),
                      values(from, r * c.count, c.count));
          }
        });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, AllToAll, testing::Values(all_to_all_pairwise, all_to_all_bruck));

TEST(AllToAllPairwise, TransposesUnevenParts) {
  for (const int size : {1, 2, 3, 4, 7, 8}) {
    // Rank a sends (a * 5 + b * 3) % 7 elements to rank b, so some parts are empty.
    const auto part = [](int from, int to) { return std::size_t(from * 5 + to * 3) % 7; };
    std::vector<Rank> ranks(size);
    for (int r = 0; r < size; ++r) {
      std::vector<std::size_t> in_splits, out_splits;
      for (int peer = 0; peer < size; ++peer) {
        in_splits.push_back(part(r, peer));
        out_splits.push_back(part(peer, r));
        const Values sent = values(r * size + peer, 0, part(r, peer));
        ranks[r].in.insert(ranks[r].in.end(), sent.begin(), sent.end());
      }
      ranks[r].out.assign(std::accumulate(out_splits.begin(), out_splits.end(), std::size_t(0)), kUntouched);
      ranks[r].in_base = bytes_of(ranks[r].in);
      ranks[r].out_base = bytes_of(ranks[r].out);
      ranks[r].plan = all_to_all_pairwise(
          {.rank = r, .size = size, .element = kElement, .in_splits = in_splits, .out_splits = out_splits});
    }
    const auto ended = Simulation(std::move(ranks)).run(1);
    ASSERT_EQ(int(ended.size()), size);
    for (int r = 0; r < size; ++r) {
      Values expected;
      for (int from = 0; from < size; ++from) {
        const Values came = values(from * size + r, 0, part(from, r));
        expected.insert(expected.end(), came.begin(), came.end());
      }
      EXPECT_EQ(ended[r].out, expected) << "size " << size << " rank " << r;
    }
  }
}

// Every third part is empty, and segment boundaries cut some of the others.
TEST(UnevenParts, EveryAlgorithmWithSplitsSupportsThem) {
  for (const int size : {1, 2, 3, 4, 7, 8})
    for (const std::size_t segment : {std::size_t(256) << 10, std::size_t(16)})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(testing::Message() << "size " << size << " segment " << segment << " in place " << in_place);
        const int root = size / 2;
        const Hosts hosts = hosts_of(size % kLayouts, size);
        std::vector<std::size_t> splits, begins;
        for (int r = 0; r < size; ++r) {
          begins.push_back(std::accumulate(splits.begin(), splits.end(), std::size_t(0)));
          splits.push_back(r % 3 == 1 ? 0 : std::size_t(r) + 2);
        }
        const std::size_t total = begins.back() + splits.back();
        enum Parted { kAllGather, kReduceScatter, kGather, kScatter };
        const std::pair<Parted, Plan (*)(const Shape&)> algorithms[] = {{kAllGather, all_gather_ring},
                                                                        {kAllGather, all_gather_bruck},
                                                                        {kAllGather, all_gather_mesh},
                                                                        {kAllGather, all_gather_two_level},
                                                                        {kReduceScatter, reduce_scatter_ring},
                                                                        {kReduceScatter, reduce_scatter_bruck},
                                                                        {kReduceScatter, reduce_scatter_mesh},
                                                                        {kReduceScatter, reduce_scatter_two_level},
                                                                        {kGather, gather_direct},
                                                                        {kScatter, scatter_direct}};
        for (const auto& [verb, plan] : algorithms) {
          const bool gathers = verb == kAllGather || verb == kGather;
          std::vector<Rank> ranks(static_cast<std::size_t>(size));
          for (int r = 0; r < size; ++r) {
            Rank& rank = ranks[std::size_t(r)];
            const bool has_large = r == root || verb == kAllGather || verb == kReduceScatter;
            Shape shape{
                .rank = r, .size = size, .root = root, .element = kElement, .segment = segment, .hosts = &hosts};
            shape.in_place = in_place && has_large;
            if (verb == kGather || verb == kScatter) shape.count = splits[r];
            if (has_large) (gathers ? shape.out_splits : shape.in_splits) = splits;
            const Values small = gathers ? values(r, begins[r], splits[r]) : Values(splits[r], kUntouched);
            Values large = gathers ? Values(total, kUntouched) : values(r, 0, total);
            if (shape.in_place && gathers) std::copy(small.begin(), small.end(), large.begin() + begins[r]);
            rank.in = gathers ? small : large;
            rank.out = gathers ? large : small;
            rank.in_base = shape.in_place && gathers ? bytes_of(rank.out, begins[r]) : bytes_of(rank.in);
            rank.out_base = shape.in_place && !gathers ? bytes_of(rank.in, begins[r]) : bytes_of(rank.out);
            rank.plan = plan(shape);
          }
          const auto ended = Simulation(std::move(ranks)).run(7);
          ASSERT_EQ(int(ended.size()), size) << "the plan came to a halt";
          for (int r = 0; r < size; ++r) {
            const Rank& rank = ended[std::size_t(r)];
            if (gathers) {
              Values expected;
              for (int from = 0; from < size; ++from)
                for (const auto v : values(from, begins[from], splits[from])) expected.push_back(v);
              if (verb == kAllGather || r == root) {
                EXPECT_EQ(rank.out, expected);
              }
            } else {
              const bool mine_in_place = in_place && (verb == kReduceScatter || r == root);
              const Values& written = mine_in_place ? rank.in : rank.out;
              const std::size_t at = mine_in_place ? begins[r] : 0;
              EXPECT_EQ(Values(written.begin() + at, written.begin() + at + splits[r]),
                        verb == kScatter ? values(root, begins[r], splits[r]) : sum(size, begins[r], splits[r]));
            }
          }
        }
      }
}

// No rank may leave before all have entered. The test runs the steps of all ranks but one as far as possible; no rank
// may finish.
TEST(BarrierDissemination, NoRankLeavesWhileOneIsMissing) {
  for (const int size : {2, 3, 4, 7, 8}) {
    for (int missing = 0; missing < size; ++missing) {
      std::vector<Plan> plans;
      std::vector<std::size_t> done(size);
      std::map<std::pair<int, int>, int> signals;
      for (int r = 0; r < size; ++r) plans.push_back(barrier_dissemination({.rank = r, .size = size}));
      for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < size; ++r) {
          if (r == missing || done[r] == plans[r].steps.size()) continue;
          const Step& step = plans[r].steps[done[r]];
          if (step.kind == StepKind::kSend)
            ++signals[{r, step.peer}];
          else if (signals[{step.peer, r}] == 0)
            continue;
          else
            --signals[{step.peer, r}];
          ++done[r];
          any = true;
        }
      }
      for (int r = 0; r < size; ++r)
        EXPECT_LT(done[r], plans[r].steps.size()) << "size " << size << " missing " << missing << " rank " << r;
    }
    std::vector<Rank> ranks(size);
    for (int r = 0; r < size; ++r) ranks[r].plan = barrier_dissemination({.rank = r, .size = size});
    EXPECT_EQ(int(Simulation(std::move(ranks)).run(3).size()), size) << "the barrier came to a halt";
  }
}

TEST(Algorithms, PlansOfAThousandRanksHaveFewSteps) {
  EXPECT_EQ(all_reduce_recursive_doubling({.rank = 5, .size = 1024, .count = 1, .element = 4}).steps.size(),
            31u);  // 10 x 3 and a copy
  EXPECT_EQ(barrier_dissemination({.rank = 5, .size = 1000}).steps.size(), 20u);
  EXPECT_EQ(all_reduce_halving_doubling({.rank = 5, .size = 1024, .count = 1024, .element = 4}).steps.size(), 40u);
  // 10 rounds each way, each with one or two ranges to send and to receive.
  EXPECT_LE(all_reduce_bruck({.rank = 5, .size = 1000, .count = 1000, .element = 4}).steps.size(), 80u);
  EXPECT_EQ(all_gather_bruck({.rank = 0, .size = 1000, .count = 1, .element = 4}).steps.size(), 21u);
  EXPECT_EQ(all_reduce_ring({.rank = 5, .size = 1000, .count = 1000, .element = 4}).steps.size(), 4u * 999);
}

// Scratch memory does not grow with the vector. (comm/links/planned_calls.h splits the calls of the other algorithms.)
TEST(Algorithms, ScratchForLongVectorsIsBounded) {
  for (const int size : {2, 3, 8, 64}) {
    const Shape shape{.rank = 1, .size = size, .count = (std::size_t(1) << 30) / std::size_t(size), .element = 4};
    EXPECT_LE(reduce_scatter_ring(shape).scratch_bytes, 8u << 20) << size;
    Shape in_place = shape;
    in_place.in_place = true;
    EXPECT_LE(all_to_all_pairwise(in_place).scratch_bytes, 9u << 20) << size;
    EXPECT_EQ(all_to_all_pairwise(shape).scratch_bytes, 0u);
    EXPECT_EQ(all_reduce_ring(shape).scratch_bytes, 0u);
  }
}

}  // namespace
}  // namespace tutti
