// Every verb, dtype, op, size of group (1, 2, 3, 4, 7) and count (0, 1, n - 1, n, 1001, and one that needs several
// pieces), in place and not, in the shared heap and in private memory, compared with what each rank can compute alone.
#include "tests/conformance/group_conformance.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>

#include "tutti/base/float16.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/select.h"
#include "tutti/planning/mesh.h"

namespace tutti::test {
namespace {

// The element of `rank` at `index`: small numbers, so that every sum is exact in every dtype.
std::int64_t value_of(DType dtype, ReduceOp op, int rank, std::size_t index) {
  const std::int64_t v = std::int64_t((std::size_t(rank) * 7 + index * 3) % 5);
  if (dtype == DType::kBool) return v % 2;
  if (op == ReduceOp::kProduct) return 1 + v % 2;
  return v;
}

void store(DType dtype, void* at, std::size_t index, double value) {
  const auto integer = std::int64_t(value);
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(at)[index] = float(value);
      break;
    case DType::kF64:
      static_cast<double*>(at)[index] = value;
      break;
    case DType::kF16:
      static_cast<Half*>(at)[index] = to_half(float(value));
      break;
    case DType::kBF16:
      static_cast<BFloat16*>(at)[index] = to_bfloat16(float(value));
      break;
    case DType::kI8:
      static_cast<std::int8_t*>(at)[index] = std::int8_t(integer);
      break;
    case DType::kU8:
      static_cast<std::uint8_t*>(at)[index] = std::uint8_t(integer);
      break;
    case DType::kI32:
      static_cast<std::int32_t*>(at)[index] = std::int32_t(integer);
      break;
    case DType::kI64:
      static_cast<std::int64_t*>(at)[index] = integer;
      break;
    case DType::kBool:
      static_cast<std::uint8_t*>(at)[index] = integer != 0;
      break;
    case DType::kC64:
      static_cast<std::complex<float>*>(at)[index] = {float(value), -float(value)};
      break;
    case DType::kC128:
      static_cast<std::complex<double>*>(at)[index] = {value, -value};
      break;
  }
}

// Of a premultiplied sum: exact in every dtype, and another for each rank.
double factor_of(int rank) { return 0.5 * (rank + 1); }

double expected_reduction(DType dtype, ReduceOp op, int ranks, std::size_t index) {
  if (op == ReduceOp::kPremulSum) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += double(value_of(dtype, op, r, index)) * factor_of(r);
    return sum;
  }
  std::int64_t all = value_of(dtype, op, 0, index);
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t v = value_of(dtype, op, r, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        all += v;
        break;
      case ReduceOp::kProduct:
        all *= v;
        break;
      case ReduceOp::kMin:
        all = std::min(all, v);
        break;
      case ReduceOp::kMax:
        all = std::max(all, v);
        break;
      case ReduceOp::kBand:
        all &= v;
        break;
      case ReduceOp::kBor:
        all |= v;
        break;
      case ReduceOp::kBxor:
        all ^= v;
        break;
      case ReduceOp::kPremulSum:
        break;
    }
  }
  if (op != ReduceOp::kAvg) return double(all);
  if (!is_floating(dtype) && !is_complex(dtype)) return double(all / ranks);
  return dtype == DType::kF64 || dtype == DType::kC128 ? double(all) / ranks : double(float(all) / float(ranks));
}

std::vector<ReduceOp> ops_of(DType dtype) {
  if (is_complex(dtype)) return {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum};
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
  if (size_of(dtype) > 1) ops.push_back(ReduceOp::kAvg);
  if (is_floating(dtype))
    ops.push_back(ReduceOp::kPremulSum);
  else
    for (ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) ops.push_back(op);
  return ops;
}

// Memory for a test buffer, from the heap or private, filled with a pattern that no result has.
class Buffer {
 public:
  Buffer(const Group& world, bool heap, DType dtype, std::size_t count) : bytes_(count * size_of(dtype)) {
    if (heap)
      shared_ = world.allocate(bytes_ + 1).or_throw();
    else
      own_.resize(bytes_ + 1);
    std::memset(data(), 0xa5, bytes_);
  }
  std::byte* data() { return shared_ ? shared_.get() : own_.data(); }

 private:
  std::size_t bytes_;
  std::shared_ptr<std::byte> shared_;
  std::vector<std::byte> own_;
};

// One call, checked against expectation(index) for the whole output.
struct Case {
  const Group& world;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count;
  bool heap, in_place;
  int root = 0;
  std::string words(Kind kind) const {
    return detail::words(tutti::name(kind), " ", tutti::name(dtype), "[", std::to_string(count), "] ", tutti::name(op),
                         heap ? " heap" : " private", in_place ? " in place" : "", " root ", root, " of ", world.size(),
                         " on rank ", world.rank());
  }
};

void expect_equal(const Case& c, Kind kind, const std::byte* got, std::size_t count,
                  const std::function<double(std::size_t)>& expectation) {
  std::vector<std::byte> wanted(count * size_of(c.dtype) + 1);
  for (std::size_t i = 0; i < count; ++i) store(c.dtype, wanted.data(), i, expectation(i));
  for (std::size_t i = 0; i < count * size_of(c.dtype); ++i)
    if (got[i] != wanted[i])
      throw std::runtime_error(c.words(kind) + ": wrong at element " + std::to_string(i / size_of(c.dtype)));
}

// Shapes of the verbs, as comm/request.h says them.
void run_case(const Case& c, Kind kind) {
  const int n = c.world.size(), me = c.world.rank();
  const std::size_t count = c.count, element = size_of(c.dtype);
  const bool in_parts = kind == Kind::kScatter || kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  const bool out_parts = kind == Kind::kGather || kind == Kind::kAllGather || kind == Kind::kAllToAll;
  const std::size_t ins = count * (in_parts ? n : 1), outs = count * (out_parts ? n : 1);
  Buffer in_memory(c.world, c.heap, c.dtype, std::max(ins, outs)), out_memory(c.world, c.heap, c.dtype, outs);
  std::byte* out = c.in_place ? in_memory.data() : out_memory.data();
  std::byte* in = in_memory.data();
  if (c.in_place && out_parts && !in_parts)
    in = out + std::size_t(me) * count * element;  // own part of the large buffer
  if (c.in_place && in_parts && !out_parts) out = in + std::size_t(me) * count * element;
  const bool gives = kind == Kind::kBroadcast || kind == Kind::kScatter ? me == c.root : true;
  if (gives)
    for (std::size_t i = 0; i < ins; ++i) store(c.dtype, in, i, double(value_of(c.dtype, c.op, me, i)));
  c.world
      .run({.kind = kind,
            .dtype = c.dtype,
            .op = c.op,
            .root = c.root,
            .in = in,
            .out = out,
            .count = count,
            .factor = factor_of(me)})
      .or_throw();
  switch (kind) {
    case Kind::kReduce:
      if (me != c.root) break;
      [[fallthrough]];
    case Kind::kAllReduce:
      expect_equal(c, kind, out, count, [&](std::size_t i) { return expected_reduction(c.dtype, c.op, n, i); });
      break;
    case Kind::kReduceScatter:
      expect_equal(c, kind, out, count,
                   [&](std::size_t i) { return expected_reduction(c.dtype, c.op, n, std::size_t(me) * count + i); });
      break;
    case Kind::kBroadcast:
      expect_equal(c, kind, out, count, [&](std::size_t i) { return double(value_of(c.dtype, c.op, c.root, i)); });
      break;
    case Kind::kGather:
      if (me != c.root) break;
      [[fallthrough]];
    case Kind::kAllGather:
      if (count)
        expect_equal(c, kind, out, outs,
                     [&](std::size_t i) { return double(value_of(c.dtype, c.op, int(i / count), i % count)); });
      break;
    case Kind::kScatter:
      expect_equal(c, kind, out, count,
                   [&](std::size_t i) { return double(value_of(c.dtype, c.op, c.root, std::size_t(me) * count + i)); });
      break;
    case Kind::kAllToAll:
      if (count)
        expect_equal(c, kind, out, outs, [&](std::size_t i) {
          return double(value_of(c.dtype, c.op, int(i / count), std::size_t(me) * count + i % count));
        });
      break;
    case Kind::kGatherV:
    case Kind::kAllGatherV:
    case Kind::kScatterV:
    case Kind::kReduceScatterV:
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
}

// The _v verbs: every third rank's part is empty, the others differ.
void run_uneven_case(const Case& c, Kind kind) {
  const int n = c.world.size(), me = c.world.rank();
  const std::size_t element = size_of(c.dtype);
  std::vector<std::size_t> splits, begins;
  std::size_t total = 0;
  for (int r = 0; r < n; ++r) {
    begins.push_back(total);
    splits.push_back(r % 3 == 1 || c.count == 0 ? 0 : c.count + std::size_t(r));
    total += splits.back();
  }
  const std::size_t mine = splits[std::size_t(me)], before = begins[std::size_t(me)];
  const bool parts_in = gives_parts(kind), root = me == c.root || !has_root(kind);
  Buffer large_memory(c.world, c.heap, c.dtype, total), small_memory(c.world, c.heap, c.dtype, mine);
  std::byte* const large = root ? large_memory.data() : nullptr;
  std::byte* small = c.in_place && root ? large + before * element : mine > 0 ? small_memory.data() : nullptr;
  // Large buffers are numbered through, so that a part that lands in a wrong place shows.
  if (parts_in && root)
    for (std::size_t i = 0; i < total; ++i) store(c.dtype, large, i, double(value_of(c.dtype, c.op, me, i)));
  if (!parts_in)
    for (std::size_t i = 0; i < mine; ++i) store(c.dtype, small, i, double(value_of(c.dtype, c.op, me, before + i)));
  Request request{.kind = kind,
                  .dtype = c.dtype,
                  .op = c.op,
                  .root = c.root,
                  .in = parts_in ? large : small,
                  .out = parts_in ? small : large,
                  .factor = factor_of(me)};
  if (has_root(kind)) request.count = mine;
  if (root) (parts_in ? request.in_splits : request.out_splits) = splits;
  c.world.run(request).or_throw();
  const auto from = [&](std::size_t i) {
    return int(std::upper_bound(begins.begin(), begins.end(), i) - begins.begin()) - 1;
  };
  if (kind == Kind::kReduceScatterV)
    expect_equal(c, kind, small, mine, [&](std::size_t i) { return expected_reduction(c.dtype, c.op, n, before + i); });
  else if (kind == Kind::kScatterV)
    expect_equal(c, kind, small, mine,
                 [&](std::size_t i) { return double(value_of(c.dtype, c.op, c.root, before + i)); });
  else if (root)
    expect_equal(c, kind, large, total, [&](std::size_t i) { return double(value_of(c.dtype, c.op, from(i), i)); });
}

std::vector<std::size_t> counts_for(int n) { return {0, 1, std::size_t(n - 1), std::size_t(n), 14, 1001, 150000}; }

}  // namespace

// Every dtype at small counts; f32 at the large one, where only the movement differs.
// Where every call costs a round of system calls, all dtypes with sum and all ops with i32 are enough.
void sweep(Kind kind, const Group& world, bool thorough) {
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
            const Case c{.world = world,
                         .dtype = dtype,
                         .op = op,
                         .count = count,
                         .heap = heap,
                         .in_place = in_place,
                         .root = int(count) % world.size()};
            is_uneven(kind) ? run_uneven_case(c, kind) : run_case(c, kind);
          }
}

void GroupSuite::everywhere(const RankBody& body) {
  for (int size : kSizes) EXPECT_EQ(describe(GetParam().run(size, body)), "") << "in a world of " << size;
}
void GroupSuite::sweep_everywhere(Kind kind) {
  everywhere([kind, thorough = GetParam().thorough](Group& world) { sweep(kind, world, thorough); });
}

TEST_P(GroupSuite, AllReduce) { sweep_everywhere(Kind::kAllReduce); }
TEST_P(GroupSuite, Reduce) { sweep_everywhere(Kind::kReduce); }
TEST_P(GroupSuite, Broadcast) { sweep_everywhere(Kind::kBroadcast); }
TEST_P(GroupSuite, Gather) { sweep_everywhere(Kind::kGather); }
TEST_P(GroupSuite, AllGather) { sweep_everywhere(Kind::kAllGather); }
TEST_P(GroupSuite, Scatter) { sweep_everywhere(Kind::kScatter); }
TEST_P(GroupSuite, ReduceScatter) { sweep_everywhere(Kind::kReduceScatter); }
TEST_P(GroupSuite, AllToAll) { sweep_everywhere(Kind::kAllToAll); }

TEST_P(GroupSuite, GatherV) { sweep_everywhere(Kind::kGatherV); }
TEST_P(GroupSuite, AllGatherV) { sweep_everywhere(Kind::kAllGatherV); }
TEST_P(GroupSuite, ScatterV) { sweep_everywhere(Kind::kScatterV); }
TEST_P(GroupSuite, ReduceScatterV) { sweep_everywhere(Kind::kReduceScatterV); }

TEST_P(GroupSuite, AllToAllWithSplits) {
  everywhere([](Group& world) {
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
        all_to_all(world, std::span<const std::int32_t>(in, in_total), std::span<const std::size_t>(ins),
                   std::span(out, out_total), std::span<const std::size_t>(outs));
        for (int r = 0, at = 0; r < n; ++r)
          for (std::size_t i = 0; i < outs[r]; ++i, ++at)
            check(out[at] == r * 1000 + me * 100 + int(i % 97), "splits: wrong element ", int(i), " from rank ", r);
      }
  });
}

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

TEST_P(GroupSuite, SendAndReceive) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    if (n == 1) return;
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    for (std::size_t count : {0, 1, 1001, 300000}) {
      std::vector<std::int32_t> out(count, me), in(count, -1);
      Work sending = isend(world, std::span<const std::int32_t>(out), next, 3);
      recv(world, std::span(in), before, 3);
      sending.get();
      for (std::int32_t v : in) check(v == before, "a wrong element from rank ", before);
    }
    // Tags out of order, beside a collective.
    std::int32_t a = me * 10 + 1, b = me * 10 + 2, got_a = 0, got_b = 0;
    Work first = isend(world, std::span<const std::int32_t>(&a, 1), next, 1),
         second = isend(world, std::span<const std::int32_t>(&b, 1), next, 2);
    check(all_reduce(world, std::int32_t(1)) == n, "all_reduce beside sends");
    Work late = irecv(world, std::span(&got_b, 1), before, 2), early = irecv(world, std::span(&got_a, 1), before, 1);
    for (Work* work : {&first, &second, &late, &early}) work->get();
    check(got_a == before * 10 + 1 && got_b == before * 10 + 2, "tags were mixed up");
  });
}

TEST_P(GroupSuite, ReceiveFromAnySource) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    if (n == 1) return;
    constexpr int kMessages = 30;
    for (const std::size_t count : {0, 1, 1001, 100000}) {
      const int messages = count > 2000 ? 3 : kMessages;
      const int tag = int(count);  // who is done with one round may already send for the next
      if (me != 0) {
        std::vector<std::int32_t> mine(count);
        for (int i = 0; i < messages; ++i) {
          std::fill(mine.begin(), mine.end(), me * 1000 + i);
          send(world, std::span<const std::int32_t>(mine), 0, tag);
        }
        continue;
      }
      std::vector<int> came(std::size_t(n), 0);
      std::vector<std::int32_t> data(count);
      for (int i = 0; i < messages * (n - 1); ++i) {
        const int source = recv_any(world, std::span(data), tag);
        const int number = came[std::size_t(source)]++;
        for (const std::int32_t v : data)
          check(v == source * 1000 + number, "message ", number, " of rank ", source, " holds ", v);
      }
      for (int r = 1; r < n; ++r)
        check(came[std::size_t(r)] == messages, came[std::size_t(r)], " messages of rank ", r);
    }
    // Asynchronous, beside a collective; and the sender may leave as soon as it has sent.
    std::int32_t value = me, source = kAnySource;
    if (me == 0) {
      std::vector<std::int32_t> values(std::size_t(n), -1), sources(std::size_t(n), -1);
      std::vector<Work> works;
      for (int i = 1; i < n; ++i)
        works.push_back(irecv_any(world, std::span(&values[std::size_t(i)], 1), sources[std::size_t(i)], 7));
      barrier(world);
      for (const Work& work : works) work.get();
      for (int i = 1; i < n; ++i) check(values[std::size_t(i)] == sources[std::size_t(i)], "from whom?");
      for (int i = 1; i < n; ++i) {
        source = recv_any(world, std::span(&value, 1), 9);
        check(value == source, "rank ", source, " sent ", value);
      }
    } else {
      send(world, std::span<const std::int32_t>(&value, 1), 0, 7);
      barrier(world);
      send(world, std::span<const std::int32_t>(&value, 1), 0, 9);
    }
  });
}

// Every rank exchanges several messages with every other, listed in an order of its own.
TEST_P(GroupSuite, BatchesInAnyOrder) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    for (const std::size_t count : {std::size_t(1), std::size_t(60000)}) {
      constexpr int kTags = 3;
      const auto cell = [&](int peer, int tag) { return std::size_t(peer * kTags + tag); };
      std::vector<std::vector<std::int32_t>> outs(std::size_t(n * kTags)), ins(std::size_t(n * kTags));
      std::vector<Request> batch;
      for (int peer = 0; peer < n; ++peer)
        for (int tag = 0; tag < kTags && peer != me; ++tag) {
          outs[cell(peer, tag)].assign(count, me * 100 + peer * 10 + tag);
          ins[cell(peer, tag)].assign(count, -1);
          batch.push_back(requests::send(std::span<const std::int32_t>(outs[cell(peer, tag)]), peer, tag));
          batch.push_back(requests::recv(std::span(ins[cell(peer, tag)]), peer, tag));
        }
      std::shuffle(batch.begin(), batch.end(), std::mt19937(unsigned(me) + unsigned(count)));
      const Works works = batch_isend_irecv(world, batch);
      check(works.size() == batch.size(), "a Work for each");
      works.get();
      for (int peer = 0; peer < n; ++peer)
        for (int tag = 0; tag < kTags && peer != me; ++tag)
          for (const std::int32_t v : ins[cell(peer, tag)])
            check(v == peer * 100 + me * 10 + tag, "from rank ", peer, " with tag ", tag, ": ", v);
    }
    // One that cannot be right: none is started.
    std::int32_t x = 0;
    const Works works = batch_isend_irecv(world, {requests::send(std::span<const std::int32_t>(&x, 1), (me + 1) % n),
                                                  requests::recv(std::span(&x, 1), 99)});
    const Status status = works.wait();
    check(!status.ok() && (n == 1 || to_string(status.error()).find("the peer 99 is not a rank") != std::string::npos),
          "a wrong peer in a batch");
    barrier(world);
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
