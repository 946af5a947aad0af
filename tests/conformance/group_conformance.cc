// Every verb, dtype, op, size of group (1, 2, 3, 4, 7) and count (0, 1, n - 1, n, 1001, and one that needs several
// pieces), in place and not, in the shared heap and in private memory, compared with what each rank can compute alone.
#include "tests/conformance/group_conformance.h"

#include <memory>

#include "tests/conformance/group_exercise.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

std::vector<std::size_t> counts_for(int n) { return {0, 1, std::size_t(n - 1), std::size_t(n), 14, 1001, 150000}; }

}  // namespace

// Every dtype at small counts; f32 at the large one, where only the movement differs.
// Where every call costs a round of system calls, all dtypes with sum and all ops with i32 are enough.
void sweep(Kind kind, const Group& world, bool thorough, const Call& call) {
  for (DType dtype : kDTypes)
    for (ReduceOp op : is_reduction(kind) ? ops_of(dtype) : std::vector{ReduceOp::kSum})
      for (std::size_t count : counts_for(world.size()))
        for (bool heap : {true, false})
          for (bool in_place : {false, true}) {
            if (count > 2000 && (dtype != DType::kF32 || op != ReduceOp::kSum)) continue;
            if (!in_place && kind == Kind::kBroadcast) continue;  // has one buffer
            if (!thorough && op != ReduceOp::kSum && op != ReduceOp::kPremulSum &&
                (dtype != DType::kI32 || count == 0 || heap))
              continue;
            if (!thorough && world.size() > 4 && (heap || count == 14)) continue;
            const Exercise exercise(world, kind,
                                    {.dtype = dtype,
                                     .op = op,
                                     .count = count,
                                     .heap = heap,
                                     .in_place = in_place,
                                     .root = int(count) % world.size()});
            call(world, exercise.request()).or_throw();
            exercise.check();
          }
}

void GroupSuite::everywhere(const RankBody& body) {
  for (int size : kSizes) EXPECT_EQ(describe(GetParam().run(size, body)), "") << "in a world of " << size;
}
void GroupSuite::sweep_everywhere(Kind kind) {
  const GroupBackend& backend = GetParam();
  everywhere([&](Group& world) { sweep(kind, world, backend.thorough, backend.call); });
}

TEST_P(GroupSuite, AllReduce) { sweep_everywhere(Kind::kAllReduce); }
TEST_P(GroupSuite, Reduce) { sweep_everywhere(Kind::kReduce); }
TEST_P(GroupSuite, Broadcast) { sweep_everywhere(Kind::kBroadcast); }
TEST_P(GroupSuite, Gather) { sweep_everywhere(Kind::kGather); }
TEST_P(GroupSuite, AllGather) { sweep_everywhere(Kind::kAllGather); }
TEST_P(GroupSuite, Scatter) { sweep_everywhere(Kind::kScatter); }
TEST_P(GroupSuite, ReduceScatter) { sweep_everywhere(Kind::kReduceScatter); }
TEST_P(GroupSuite, Scan) { sweep_everywhere(Kind::kScan); }
TEST_P(GroupSuite, Exscan) { sweep_everywhere(Kind::kExscan); }
TEST_P(GroupSuite, AllToAll) { sweep_everywhere(Kind::kAllToAll); }

TEST_P(GroupSuite, GatherV) { sweep_everywhere(Kind::kGatherV); }
TEST_P(GroupSuite, AllGatherV) { sweep_everywhere(Kind::kAllGatherV); }
TEST_P(GroupSuite, ScatterV) { sweep_everywhere(Kind::kScatterV); }
TEST_P(GroupSuite, ReduceScatterV) { sweep_everywhere(Kind::kReduceScatterV); }

TEST_P(GroupSuite, AllToAllWithSplits) {
  everywhere([&call = GetParam().call](Group& world) {
    const int n = world.size(), me = world.rank();
    for (std::size_t scale : {std::size_t(1), std::size_t(400), std::size_t(30000)})
      for (bool heap : {true, false}) {
        // Rank a has (a + b) % 3 * scale elements for rank b: sometimes none.
        std::vector<std::size_t> ins(n), outs(n);
        std::size_t in_total = 0, out_total = 0;
        for (int r = 0; r < n; ++r) {
          in_total += ins[r] = std::size_t((me + r) % 3) * scale;
          out_total += outs[r] = std::size_t((r + me) % 3) * scale;
        }
        Buffer in_memory(world, heap, DType::kI32, in_total), out_memory(world, heap, DType::kI32, out_total);
        auto* in = reinterpret_cast<std::int32_t*>(in_memory.data());
        auto* out = reinterpret_cast<std::int32_t*>(out_memory.data());
        for (int r = 0, at = 0; r < n; ++r)
          for (std::size_t i = 0; i < ins[r]; ++i) in[at++] = std::int32_t(me * 1000 + r * 100) + std::int32_t(i % 97);
        call(world, requests::all_to_all(std::span<const std::int32_t>(in, in_total), std::span<const std::size_t>(ins),
                                         std::span(out, out_total), std::span<const std::size_t>(outs)))
            .or_throw();
        for (int r = 0, at = 0; r < n; ++r)
          for (std::size_t i = 0; i < outs[r]; ++i, ++at)
            check(out[at] == r * 1000 + me * 100 + int(i % 97), "splits: wrong element ", int(i), " from rank ", r);
      }
  });
}

TEST_P(GroupSuite, AsynchronousInOrder) {
  everywhere([](Group& world) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int k = 0; k < 20; ++k) data.emplace_back(std::size_t(1) << (k % 16), float(k));
    for (auto& d : data) works.push_back(all_reduce_async(world, std::span(d)));
    for (int k = 19; k >= 0; --k) works[k].get();
    for (int k = 0; k < 20; ++k) check(data[k].back() == float(k * world.size()), "all_reduce number ", k);
  });
}

// Everything that can be packed and some that cannot, several of each, in one go.
TEST_P(GroupSuite, Coalesced) {
  everywhere([](Group& world) {
    for (const bool heap : {true, false})
      for (const bool in_place : {true, false}) {
        std::vector<std::unique_ptr<Exercise>> exercises;
        Coalesced together(world);
        const auto add = [&](Kind kind, const Case& what) {
          exercises.push_back(std::make_unique<Exercise>(world, kind, what));
          together.add(exercises.back()->request());
        };
        for (const std::size_t count : {3, 0, 1, 1001, 20, 70000, 2}) {
          for (const Kind kind : {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kBroadcast,
                                  Kind::kGather, Kind::kScatter, Kind::kReduce, Kind::kAllToAll, Kind::kAllGatherV})
            for (const DType dtype : {DType::kF32, DType::kI8})
              for (const int root : {0, world.size() - 1}) {
                if (root > 0 && !has_root(kind)) continue;
                add(kind, {.dtype = dtype,
                           .count = count,
                           .heap = heap,
                           .in_place = in_place || kind == Kind::kBroadcast,
                           .root = root});
              }
          add(Kind::kAllReduce,
              {.dtype = DType::kF32, .op = ReduceOp::kMax, .count = count, .heap = heap, .in_place = in_place});
          add(Kind::kAllReduce,
              {.dtype = DType::kF64, .op = ReduceOp::kPremulSum, .count = count, .heap = heap, .in_place = in_place});
        }
        if (heap) {
          together.run();
        } else {
          const CoalescedWork work = together.submit();
          check(all_reduce(world, 1) == world.size(), "a call behind it");
          work.get();
          check(work.done(), "done");
        }
        for (const auto& exercise : exercises) exercise->check();
        check(together.size() == 0, "what was submitted is gone");
      }
    std::vector<float> a(5, 1.0f), b(300, 2.0f);
    all_reduce_coalesced<float>(world, {std::span(a), std::span(b)});
    check(a[4] == float(world.size()) && b[299] == float(2 * world.size()), "all_reduce_coalesced");
  });
}

// One call of several that cannot be right: none is started, and the group is as good as before.
TEST_P(GroupSuite, CoalescedWithAMistake) {
  everywhere([](Group& world) {
    float x = 1, y = 1;
    Coalesced together(world);
    together.add(requests::all_reduce(std::span(&x, 1), ReduceOp::kSum));
    together.add(requests::broadcast(std::span(&y, 1), 99));
    const Status status = together.submit().wait();
    check(!status.ok() && to_string(status.error()).find("the root 99 is not a rank") != std::string::npos, "root");
    check(all_reduce(world, 1) == world.size() && x == 1, "nothing was started");
    together.run();  // nothing
  });
}

}  // namespace tutti::test
