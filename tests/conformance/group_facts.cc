// What is not about moving data: barriers, sub-groups, taking turns, and calls that cannot be right.
#include <limits>

#include "tests/conformance/group_conformance.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/objects.h"

namespace tutti::test {

TEST_P(GroupSuite, BarrierHoldsAllRanks) {
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
      check(text.find(ranks_words(late) + (late.size() == 1 ? " has" : " have") + " not arrived after") !=
                std::string::npos,
            text);
      check(text.find("monitored_barrier #4 on group world, rank " + std::to_string(me)) != std::string::npos, text);
      for (const int r : late)
        if (me == 0) send(world, std::span<const std::int32_t>(&word, 1), r);
    } else {
      recv(world, std::span(&word, 1), 0);
      const Status status = world.monitored_barrier(far);
      check(!status.ok() && status.error().code == Code::kTimeout, "a late rank was not told");
      check(to_string(status.error()).find("this rank arrived too late") != std::string::npos,
            to_string(status.error()));
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

// The other ranks do nothing meanwhile, and know nothing of it.
TEST_P(GroupSuite, SubGroupsByTheirMembersAlone) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    for (const char* name : {"ends", "ends"}) {  // a name is free again once its group has gone
      if (me != 0 && me != n - 1) break;
      std::vector<int> ends = {n - 1, 0};
      if (n == 1) ends.pop_back();
      const Group pair = world.group_of_members(ends, name).or_throw();
      check(pair.size() == int(ends.size()) && pair.name() == name, pair.name());
      if (n > 1) check(pair.rank() == (me == 0 ? 1 : 0), "order of group_of_members");
      check(all_reduce(pair, 1.5) == 1.5 * pair.size(), "sum over a pair");
    }
    const std::vector<int> foreign = {(me + 1) % n}, twice = {me, me};
    if (n > 1) check(!world.group_of_members(foreign, "f").ok(), "a rank that is not in its list");
    check(!world.group_of_members(twice, "t").ok(), "a rank that is there twice");
    barrier(world);
  });
}

TEST_P(GroupSuite, SubGroupsByEnumeration) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    for (const int each : {1, 2, n}) {
      const auto made = world.new_subgroups(each, "run");
      if (n % each != 0) {
        check(!made.ok() && to_string(made.error()).find(detail::words("groups of ", each, " do not divide the ", n)) !=
                                std::string::npos,
              "a size that does not divide");
        continue;
      }
      const Group& run = *made;
      check(run.size() == each && run.rank() == me % each, "size and rank in a run");
      check(run.name() == "world/run" + std::to_string(me / each), run.name());
      check(all_reduce(run, std::int32_t(me)) == me / each * each * each + each * (each - 1) / 2, "sum over a run");
    }
    // The last rank is in no list, the others in two, turned round.
    std::vector<std::vector<int>> lists(2);
    for (int r = n - 2; r >= 0; --r) lists[std::size_t(r % 2)].push_back(r);
    const Group part = world.new_subgroups(lists).or_throw();
    check(bool(part) == (me < n - 1), "membership");
    if (part) {
      const auto& list = lists[std::size_t(me % 2)];
      check(part.size() == int(list.size()) && list[std::size_t(part.rank())] == me, "order of a list");
      int sum = 0;
      for (const int r : list) sum += r;
      check(all_reduce(part, std::int32_t(me)) == sum, "sum over a list");
    }
    const auto refused = [&](std::vector<std::vector<int>> wrong, const std::string& words) {
      const auto made = world.new_subgroups(wrong);
      check(!made.ok() && to_string(made.error()).find(words) != std::string::npos, words);
    };
    refused({{0}, {0}}, "new_subgroups: rank 0 is listed twice (hint: a rank is in one of the groups at most)");
    refused({{n}}, detail::words("new_subgroups: rank ", n, " is not in group world, which has ", n));
    check(!world.new_subgroups(0).ok(), "groups of none");
    barrier(world);
  });
}

// (That they are obeyed: tests/faults/deadline_test.cc.)
TEST_P(GroupSuite, SubGroupsHaveDeadlinesOfTheirOwn) {
  everywhere([](Group& world) {
    using std::chrono::seconds;
    const int n = world.size(), me = world.rank();
    std::vector<int> all;
    for (int r = 0; r < n; ++r) all.push_back(r);
    const std::vector<std::vector<int>> lists = {all};
    const Group own = world.split(0, me, "own", seconds(77)).or_throw();
    check(own.timeout() == seconds(77), "of split()");
    check(own.split(0, me).or_throw().timeout() == seconds(77), "of a group made from one that has its own");
    check(world.split(0, me).or_throw().timeout() == world.timeout(), "of a group that was given none");
    check(world.new_group(all, "listed", seconds(78)).or_throw().timeout() == seconds(78), "of new_group()");
    check(world.new_subgroups(1, "each", seconds(79)).or_throw().timeout() == seconds(79), "of new_subgroups()");
    check(world.new_subgroups(lists, "lists", seconds(80)).or_throw().timeout() == seconds(80), "of lists");
    const Group half = world.split(me % 2, me, "half", seconds(81 + me % 2)).or_throw();  // each colour its own
    check(half.timeout() == seconds(81 + me % 2) && all_reduce(half, 1) == half.size(), "of two groups at once");

    const auto refused = [&](const Result<Group>& made, Code code, const std::string& words) {
      check(!made.ok() && made.error().code == code && to_string(made.error()).find(words) != std::string::npos,
            made.ok() ? "no error" : to_string(made.error()));
    };
    refused(world.split(0, me, "", seconds(-1)), Code::kInvalidArgument, "split: the timeout is -1 s");
    refused(world.new_group(all, "", Duration::max()), Code::kInvalidArgument, "at most 100 years");
    refused(world.new_subgroups(1, "", seconds(-2)), Code::kInvalidArgument, "new_subgroups: the timeout is -2 s");
    if (n > 1) {
      const auto made = world.split(me / 2, me, "", me == 0 ? seconds(5) : Duration(0));
      if (me > 1) made.status().or_throw();
      const std::string given[] = {"a timeout of 5 s", "no timeout of its own"};
      if (me < 2)
        refused(made, Code::kMismatch,
                detail::words("Mismatch: group world, rank ", me, ": rank ", 1 - me, " gave the new group ",
                              given[1 - me], ", this rank ", given[me]));
    }
    check(all_reduce(world, 1) == n, "the parent goes on");
  });
}

// What a rank hears that is in none of the groups it helped to make, whatever it calls.
TEST_P(GroupSuite, NonMembersGetAClearAnswer) {
  everywhere([](Group& world) {
    const Group none = world.split(-1, 0).or_throw();
    check(!none && none.size() == 0, "a group of nobody");
    std::vector<float> x(1), y(1);
    const std::span<float> out(x);
    const std::span<const float> in(y);
    const std::vector<std::size_t> splits = {1};
    const std::span<const std::size_t> parts(splits);
    const std::vector<std::function<void()>> calls = {
        [&] { all_reduce(none, out); },
        [&] { reduce(none, in, out, 0); },
        [&] { broadcast(none, out); },
        [&] { all_gather(none, in, out); },
        [&] { gather(none, in, out, 0); },
        [&] { scatter(none, in, out, 0); },
        [&] { reduce_scatter(none, in, out); },
        [&] { all_to_all(none, in, out); },
        [&] { all_to_all(none, in, parts, out, parts); },
        [&] { all_gather_v(none, in, out, parts); },
        [&] { reduce_scatter_v(none, in, parts, out); },
        [&] { gather_v(none, in, out, parts, 0); },
        [&] { scatter_v(none, in, parts, out, 0); },
        [&] { send(none, in, 0); },
        [&] { recv(none, out, 0); },
        [&] { recv_any(none, out); },
        [&] { (void)batch_isend_irecv(none, {requests::send(in, 0)}); },
        [&] { barrier(none); },
        [&] { monitored_barrier(none); },
        [&] { all_reduce_coalesced<float>(none, {out}); },
        [&] { all_gather_bytes(none, "x"); },
        [&] { (void)none.split(0, 0); },
        [&] { (void)none.new_subgroups(1); },
        [&] { (void)none.rank(); },
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::string text = "no error";
      try {
        calls[i]();
      } catch (const Exception& e) {
        text = e.what();
      }
      check(text.find("this rank is not in the group: split() and new_group() gave it an empty Group") !=
                std::string::npos,
            "call ", int(i), ": ", text);
    }
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
    const int n = world.size(), me = world.rank();
    std::vector<float> x(std::size_t(4 * n), 1.0f);
    const auto refused = [&](const Request& request, const std::string& words) {
      const std::string where = detail::words(" on group world, rank ", me, ": ");
      for (const Status& status : {world.run(request), world.submit(request).wait()}) {
        const std::string text = status.ok() ? "no error" : to_string(status.error());
        check(text.starts_with(std::string("InvalidArgument: ") + name(request.kind)) &&
                  text.find(where) != std::string::npos && text.find(words) != std::string::npos,
              text);
      }
    };
    Request call{.kind = Kind::kBroadcast, .dtype = DType::kF32, .root = 99, .in = &x[0], .out = &x[0], .count = 1};
    for (const Kind kind :
         {Kind::kBroadcast, Kind::kReduce, Kind::kGather, Kind::kScatter, Kind::kGatherV, Kind::kScatterV}) {
      call.kind = kind;
      refused(call, detail::words("the root 99 is not a rank of this group, which has ", n,
                                  " (hint: ", n == 1 ? "its only rank is 0" : "they are 0 to "));
    }
    call = {.kind = Kind::kSend, .dtype = DType::kF32, .root = n, .in = &x[0], .count = 1};
    refused(call, detail::words("the peer ", n, " is not a rank of this group"));
    call.root = me;
    refused(call, "a rank cannot send to itself");
    if (n == 1) refused({.kind = Kind::kRecv, .root = kAnySource}, "this group has no other rank that could send");

    call = {
        .kind = Kind::kAllReduce, .dtype = DType::kF32, .op = ReduceOp::kBxor, .in = &x[0], .out = &x[0], .count = 1};
    refused(call, "bxor is for integers");
    call.op = ReduceOp::kAvg, call.dtype = DType::kBool;
    refused(call, "avg is not for bool");
    call.op = ReduceOp::kPremulSum, call.dtype = DType::kI32;
    refused(call, "premul_sum is for floating and complex numbers, not for i32");
    call.op = ReduceOp::kPremulSum, call.dtype = DType::kF32, call.factor = std::numeric_limits<double>::infinity();
    refused(call, "the factor of premul_sum is inf");
    call.factor = 1, call.dtype = DType::kC64;
    for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kBand}) {
      call.op = op;
      refused(call, detail::words("the operation ", name(op), " is not for complex numbers (c64)"));
    }
    call = {.kind = Kind::kAllReduce, .dtype = DType::kF32, .out = &x[0], .count = 1};
    refused(call, "the input buffer is null");
    call.in = &x[0], call.limit = std::chrono::seconds(-3);
    refused(call, "the limit is -3 s");

    // Splits: as many as ranks, where the verb has them, that add up; the own part is the own part.
    const std::vector<std::size_t> ones(std::size_t(n), 1), more(std::size_t(n) + 1, 1);
    const auto splits = [&](Kind kind, std::span<const std::size_t> ins, std::span<const std::size_t> outs) {
      Request r{.kind = kind, .dtype = DType::kF32, .root = me, .in = &x[0], .out = &x[std::size_t(2 * n)], .count = 1};
      r.in_splits = ins, r.out_splits = outs;
      return r;
    };
    refused(splits(Kind::kAllGatherV, {}, more), detail::words("out_splits has ", n + 1, " entries, expected ", n));
    refused(splits(Kind::kReduceScatterV, more, {}), detail::words("in_splits has ", n + 1, " entries, expected ", n));
    refused(splits(Kind::kGatherV, {}, {}), detail::words("out_splits has 0 entries, expected ", n));
    refused(splits(Kind::kScatterV, {}, ones), detail::words("in_splits has 0 entries, expected ", n));
    refused(splits(Kind::kAllToAll, ones, {}), detail::words("out_splits has 0 entries, expected ", n));
    refused(splits(Kind::kAllReduce, {}, ones), "splits are not for all_reduce");
    refused(splits(Kind::kAllGatherV, ones, ones), "the other splits are not for all_gather_v");
    call = splits(Kind::kGatherV, {}, ones);
    call.count = 2;
    refused(call, detail::words("out_splits[", me, "] is 1, but this rank's own part has 2 elements"));
    const std::vector<std::size_t> huge(std::size_t(n), ~std::size_t(0) / 2);
    refused(splits(Kind::kAllGatherV, {}, huge), "so many elements are more than any memory holds");

    // Buffers that overlap other than in place.
    call = {.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = &x[0], .out = &x[1], .count = 2};
    refused(call, "overlap in part");
    if (n > 1) {
      const std::vector<std::size_t> twos(std::size_t(n), 2);
      const int other = (me + 1) % n;
      call = splits(Kind::kAllGatherV, {}, twos);
      call.in = &x[std::size_t(2 * other)], call.out = &x[0];
      refused(call, "the smaller is not this rank's part of the larger");
      call = splits(Kind::kReduceScatterV, twos, {});
      call.in = &x[0], call.out = &x[std::size_t(2 * other)];
      refused(call, "the smaller is not this rank's part of the larger");
    }
    barrier(world);  // the group is as good as before
    check(x == std::vector<float>(std::size_t(4 * n), 1.0f), "a call that was refused wrote");
  });
}

}  // namespace tutti::test
