// What is not about moving data: barriers, sub-groups, taking turns, and calls that cannot be right.
#include "tests/conformance/group_conformance.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {

TEST_P(GroupSuite, BarrierHoldsEverybody) {
  everywhere([](Group& world) {
    // Nobody's count after barrier k may be behind: each tells its count before, and sees all counts equal after.
    for (std::int32_t k = 1; k <= 20; ++k) {
      barrier(world);
      check(all_reduce(world, k, ReduceOp::kMin) == k, "a rank came out of barrier ", k, " early");
    }
  });
}

TEST_P(GroupSuite, MonitoredBarrier) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    const auto far = std::chrono::seconds(60);
    for (int i = 0; i < 3; ++i) monitored_barrier(world, far);
    if (n == 1) return;
    // The odd ranks come only when all others have given up; everybody learns who was late, and the group goes on.
    std::vector<int> late, present;
    for (int r = 0; r < n; ++r) (r % 2 ? late : present).push_back(r);
    std::int32_t word = 0;
    if (me % 2 == 0) {
      const Status status = world.monitored_barrier(std::chrono::milliseconds(200));
      check(!status.ok() && status.error().code == Code::kTimeout, "nobody was missing");
      const std::string text = to_string(status.error());
      check(
          text.find(ranks_words(late) + (late.size() == 1 ? " has" : " have") + " not come after") != std::string::npos,
          text);
      check(text.find("monitored_barrier #4 on group world, rank " + std::to_string(me)) != std::string::npos, text);
      for (const int r : late)
        if (me == 0) send(world, std::span<const std::int32_t>(&word, 1), r);
    } else {
      recv(world, std::span(&word, 1), 0);
      const Status status = world.monitored_barrier(far);
      check(!status.ok() && status.error().code == Code::kTimeout, "a late rank was not told");
      check(to_string(status.error()).find("this rank came too late") != std::string::npos, to_string(status.error()));
    }
    check(all_reduce(world, std::int32_t(1)) == n, "the group goes on");
    monitored_barrier(world, far);
    const Status negative = world.monitored_barrier(std::chrono::seconds(-1));
    check(!negative.ok() && to_string(negative.error()).find("the limit of monitored_barrier is") != std::string::npos,
          "a negative limit");
  });
}

TEST_P(GroupSuite, SubGroups) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    Group half = world.split(me % 2, -me, "half").or_throw();  // keys turn the order round
    check(half.size() == (n + 1 - me % 2) / 2, "size of a half: ", half.size());
    check(half.name() == "world/half", half.name());
    check(half.global_rank() == me, "global rank");
    check(
        all_reduce(half, std::int32_t(me)) ==
            [&] {
              int sum = 0;
              for (int r = me % 2; r < n; r += 2) sum += r;
              return sum;
            }(),
        "sum over a half");
    std::vector<std::int32_t> order(half.size());
    const std::int32_t mine = me;
    all_gather(half, std::span<const std::int32_t>(&mine, 1), std::span(order));
    for (std::size_t i = 1; i < order.size(); ++i) check(order[i - 1] > order[i], "split must order by key");
    std::vector<int> listed = {n - 1, 0};
    if (n == 1) listed.pop_back();
    Group pair = world.new_group(listed).or_throw();
    check(bool(pair) == (me == 0 || me == n - 1), "membership");
    if (pair && n > 1) check(pair.rank() == (me == 0 ? 1 : 0), "order of new_group");
    if (pair) check(all_reduce(pair, 1.5) == 1.5 * pair.size(), "sum over a pair");
    barrier(world);
  });
}

TEST_P(GroupSuite, FirstAndInOrder) {
  everywhere([](Group& world) {
    int ran = 0;
    const bool mine = world.first([&] { ran = 1; });
    check(mine == (world.rank() == 0) && ran == int(mine), "first");
    world.in_order([&] { ++ran; });
    check(ran == int(mine) + 1, "in_order");
    std::string trouble;
    try {
      world.first([] { throw std::runtime_error("the disk is full"); });
    } catch (const std::exception& e) {
      trouble = e.what();
    }
    check(trouble.find("the disk is full") != std::string::npos, "an exception must reach all: ", trouble);
  });
}

TEST_P(GroupSuite, BadCallsAreSentences) {
  everywhere([](Group& world) {
    float x = 0;
    const Status status =
        world.run({.kind = Kind::kBroadcast, .dtype = DType::kF32, .root = 99, .in = &x, .out = &x, .count = 1});
    check(
        !status.ok() && to_string(status.error()).find("the root 99 is not a rank of this group") != std::string::npos,
        "root");
    const Status bits = world.run(
        {.kind = Kind::kAllReduce, .dtype = DType::kF32, .op = ReduceOp::kBxor, .in = &x, .out = &x, .count = 1});
    check(!bits.ok() && to_string(bits.error()).find("bxor is for integers") != std::string::npos, "op");
    const Status null = world.run({.kind = Kind::kAllReduce, .dtype = DType::kF32, .out = &x, .count = 1});
    check(!null.ok() && to_string(null.error()).find("the input buffer is null") != std::string::npos, "null");
    barrier(world);  // the group is as good as before
  });
}

}  // namespace tutti::test
