// Ranks that make different calls: an error at once, which shows both calls, on every rank.
#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Difference {
  std::string name;
  Request first;  // of rank 0
  Request others;
  std::string first_text, others_text;  // without the buffers
};

// Verb, dtype, op, count, in sizes that ride in the flag line, in a slot, and in pieces.
std::vector<Difference> differences() {
  std::vector<Difference> all;
  for (const std::size_t count : {4, 600, 70000}) {
    const std::string n = std::to_string(count);
    const auto call = [&](Kind kind, DType dtype, ReduceOp op, std::size_t elements) {
      return Request{.kind = kind, .dtype = dtype, .op = op, .count = elements};
    };
    const Request sum = call(Kind::kAllReduce, DType::kF32, ReduceOp::kSum, count);
    const std::string text = "all_reduce #1 (f32[" + n + "], sum)";
    all.push_back({"verb_" + n, sum, {.kind = Kind::kBarrier}, text, "barrier #1"});
    all.push_back({"verb2_" + n, sum, call(Kind::kAllGather, DType::kF32, ReduceOp::kSum, count), text,
                   "all_gather #1 (f32[" + n + "])"});
    all.push_back({"dtype_" + n, sum, call(Kind::kAllReduce, DType::kI32, ReduceOp::kSum, count), text,
                   "all_reduce #1 (i32[" + n + "], sum)"});
    all.push_back({"op_" + n, sum, call(Kind::kAllReduce, DType::kF32, ReduceOp::kMax, count), text,
                   "all_reduce #1 (f32[" + n + "], max)"});
    all.push_back({"count_" + n, sum, call(Kind::kAllReduce, DType::kF32, ReduceOp::kSum, count + 1), text,
                   "all_reduce #1 (f32[" + std::to_string(count + 1) + "], sum)"});
    all.push_back({"size_" + n, sum, call(Kind::kAllReduce, DType::kF32, ReduceOp::kSum, 80), text,
                   "all_reduce #1 (f32[80], sum)"});
  }
  return all;
}

class Mismatch : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  const Way way_ = std::get<0>(GetParam());
  const int size_ = std::get<1>(GetParam());

  void expect_both(const RankBody& body, const std::string& first, const std::string& second, const std::string& what) {
    SCOPED_TRACE(what);
    const auto outcomes = run_world(way_, size_, body);
    const std::string cause = expect_one_cause(outcomes, -1);
    EXPECT_THAT(cause, ::testing::StartsWith("Mismatch: "));
    for (const Outcome& o : outcomes) {
      EXPECT_THAT(o.error, HasSubstr(first));
      EXPECT_THAT(o.error, HasSubstr(second));
    }
  }
};

TEST_P(Mismatch, EveryDifferenceShowsBothCalls) {
  for (const Difference& d : differences()) {
    for (const bool heap : {false, true}) {
      if (heap && way_.name.find("direct") == std::string::npos) continue;  // links do not tell them apart
      const auto body = [&](Group& world) {
        const std::size_t most = 70001 * std::size_t(size_);
        const auto in = make_buffer(world, most, heap), out = make_buffer(world, most, heap);
        Request request = world.rank() == 0 ? d.first : d.others;
        request.in = in.get();
        request.out = out.get();
        expect_failure(world, [&] { world.run(request).or_throw(); });
      };
      expect_both(body, d.first_text, d.others_text, d.name + (heap ? " heap" : " private"));
    }
  }
}

TEST_P(Mismatch, OfTheRootIsFoundByTheNextCallAtTheLatest) {
  for (const std::size_t count : {4, 600, 70000}) {
    const std::string n = std::to_string(count);
    const auto body = [&](Group& world) {
      const auto data = make_buffer(world, count, false);
      expect_failure(world, [&] {
        broadcast(world, std::span(data.get(), count), world.rank() == 0 ? 0 : 1);
        barrier(world);
      });
    };
    SCOPED_TRACE(n);
    const std::string cause = expect_one_cause(run_world(way_, size_, body), -1);
    EXPECT_THAT(cause, HasSubstr("broadcast #1 (f32[" + n + "], root "));
    if (way_.name.find("direct") != std::string::npos) {
      EXPECT_THAT(cause, HasSubstr("root 0)"));
      EXPECT_THAT(cause, HasSubstr("root 1)"));
    }
  }
}

// What all ranks give alike, and what one rank says of another's part.
TEST_P(Mismatch, OfSplits) {
  const auto splits = [&](std::size_t each, std::size_t of_rank_1) {
    std::vector<std::size_t> all(std::size_t(size_), each);
    all[1] = of_rank_1;
    return all;
  };
  for (const std::size_t count : {2, 60, 70000})
    for (const Kind kind : {Kind::kAllGatherV, Kind::kReduceScatterV, Kind::kGatherV, Kind::kScatterV}) {
      const auto body = [&](Group& world) {
        const std::size_t most = (count + 1) * std::size_t(size_);
        const auto in = make_buffer(world, most, true), out = make_buffer(world, most, true);
        const bool root = world.rank() == 0;
        const auto given = splits(count, root ? count + 1 : count);
        Request request{.kind = kind, .dtype = DType::kF32, .in = in.get(), .out = out.get()};
        if (has_root(kind)) request.count = count;
        if (root || !has_root(kind)) (gives_parts(kind) ? request.in_splits : request.out_splits) = given;
        expect_failure(world, [&] {
          world.run(request).or_throw();
          barrier(world);
        });
      };
      SCOPED_TRACE(detail::words(name(kind), " of ", std::to_string(count)));
      const std::string cause = expect_one_cause(run_world(way_, size_, body), -1);
      EXPECT_THAT(cause, ::testing::StartsWith("Mismatch: "));
      if (has_root(kind)) {
        EXPECT_THAT(cause, AllOf(HasSubstr(std::to_string(count)), HasSubstr(std::to_string(count + 1)),
                                 HasSubstr("splits of the root and")));
      } else {
        EXPECT_THAT(cause, HasSubstr("every rank of the group gives the same splits"));
      }
    }
}

// Each waits for what the other would have to send first: over links no message ever tells.
TEST_P(Mismatch, OfRootsThatWaitForEachOther) {
  const auto body = [&](Group& world) {
    const auto data = make_buffer(world, 600, false);
    expect_failure(world, [&] { broadcast(world, std::span(data.get(), 600), world.rank() == 0 ? 1 : 0); });
  };
  const std::string cause = expect_one_cause(run_world(way_, size_, body), -1);
  EXPECT_THAT(cause,
              AllOf(HasSubstr("Mismatch: broadcast #1 (f32[600], root "), HasSubstr("root 0)"), HasSubstr("root 1)")));
}

// Members and others give new_group() the same list.
TEST_P(Mismatch, OfTheRanksOfANewGroup) {
  const auto body = [&](Group& world) {
    const std::vector<int> ranks = world.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0};
    world.new_group(ranks).status().or_throw();
  };
  for (const Outcome& o : run_world(way_, size_, body)) EXPECT_THAT(o.error, HasSubstr("another list of ranks"));
}

TEST_P(Mismatch, OfTheOrder) {
  const auto body = [&](Group& world) {
    const auto data = make_buffer(world, 70000, false);
    expect_failure(world, [&] {
      if (world.rank() == 0) barrier(world);
      all_reduce(world, std::span(data.get(), 70000));
      barrier(world);
    });
  };
  expect_both(body, "barrier #1", "all_reduce #1 (f32[70000], sum)", "order");
}

TEST_P(Mismatch, InTheMiddleOfManyWorks) {
  const auto body = [&](Group& world) {
    std::vector<std::shared_ptr<float[]>> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      const std::size_t count = world.rank() == size_ - 1 && i == 6 ? 20001 : 20000;
      buffers.push_back(make_buffer(world, 20001, i % 2 == 0));
      works.push_back(all_reduce_async(world, std::span(buffers.back().get(), count)));
    }
    expect_failure(world, [&] {
      for (const Work& work : works) work.get();
    });
    for (int i = 0; i < 6; ++i) check(works[i].done(), "a Work before the mismatch has not ended");
  };
  expect_both(body, "all_reduce #7 (f32[20000], sum)", "all_reduce #7 (f32[20001], sum)", "works");
}

TEST_P(Mismatch, OfAMessage) {
  const auto body = [&](Group& world) {
    std::vector<float> data(100);
    std::vector<double> doubles(100);
    expect_failure(world, [&] {
      if (world.rank() == 0) send(world, std::span<const float>(data), 1);
      if (world.rank() == 1) recv(world, std::span(doubles), 0);
      barrier(world);
    });
  };
  expect_both(body, "send (f32[100], to 1, tag 0)", "recv (f64[100], from 0, tag 0)", "message");
}

INSTANTIATE_TEST_SUITE_P(Ways, Mismatch,
                         ::testing::Combine(::testing::ValuesIn(all_ways()), ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tutti::test
