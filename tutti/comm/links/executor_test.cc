// Ranks are threads over inproc links. If the order matters, they take turns on one thread.
#include "tutti/comm/links/executor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/float16.h"
#include "tutti/comm/plans/algorithms.h"
#include "tutti/transport/inproc/inproc_link.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;
using Algo = Plan (*)(const Shape&);

class World {
 public:
  explicit World(int size, std::size_t capacity = 256 << 10)
      : mesh_(transport::make_inproc_mesh(size, {}, capacity)), rows_(size) {
    for (int rank = 0; rank < size; ++rank) {
      for (auto& link : mesh_[rank]) rows_[rank].push_back(link.get());
    }
  }
  int size() const { return int(rows_.size()); }
  std::span<transport::Link* const> links(int rank) const { return rows_[rank]; }
  // Simulates the loss of a rank: closes its ends of the links.
  void lose(int rank) { mesh_[rank].clear(); }

  std::unique_ptr<Operation> start(int rank, const Request& request, Algo algorithm, std::uint64_t sequence = 1,
                                   std::size_t segment = 256 << 10) {
    auto plan = std::make_shared<const Plan>(algorithm(shape_of(request, rank, size(), segment)));
    std::lock_guard lock(mutex_);
    PlanMemory& memory = *memory_.emplace_back(std::make_unique<PlanMemory>());
    auto operation = make_plan_operation(wire_dtype(request), std::move(plan), links(rank), rank, size(), memory);
    operation->begin(request, sequence);
    return operation;
  }

 private:
  std::vector<std::vector<std::unique_ptr<transport::Link>>> mesh_;
  std::vector<std::vector<transport::Link*>> rows_;
  std::mutex mutex_;                                 // protects memory_
  std::vector<std::unique_ptr<PlanMemory>> memory_;  // one per operation
};

Status drive(Operation& operation) {
  const Deadline deadline = Deadline::after_seconds(100);
  for (;;) {
    auto progress = operation.step();
    if (!progress.ok()) return progress.status();
    if (*progress == Progress::kDone) return {};
    if (*progress == Progress::kBlocked) std::this_thread::yield();
    if (deadline.expired()) return deadline.error("the operation made no end");
  }
}

// Steps all operations on this thread, in turn, until each is done or one fails.
Status drive_all(std::vector<std::unique_ptr<Operation>>& operations) {
  const Deadline deadline = Deadline::after_seconds(100);
  std::vector<bool> done(operations.size());
  for (std::size_t left = operations.size(); left > 0;) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (done[i]) continue;
      auto progress = operations[i]->step();
      if (!progress.ok()) return progress.status();
      if (*progress == Progress::kDone) done[i] = true, --left;
    }
    if (deadline.expired()) return deadline.error("the operations made no end");
  }
  return {};
}

double number(int rank, std::size_t i) { return double((rank + 1) * 3 + int(i % 17)); }

TEST(PlanOperation, AllReduceOnThreadsWithBothPlans) {
  for (const Algo algorithm : {all_reduce_ring, all_reduce_recursive_doubling}) {
    for (const int size : {1, 2, 3, 4, 7}) {
      World world(size, 1 << 12);
      for (const std::size_t count :
           {std::size_t(0), std::size_t(1), std::size_t(size - 1), std::size_t(size), std::size_t(100001)}) {
        for (const bool in_place : {false, true}) {
          std::vector<std::thread> threads;
          for (int rank = 0; rank < size; ++rank) {
            threads.emplace_back([&, rank] {
              std::vector<double> in(count), out(count);
              for (std::size_t i = 0; i < count; ++i) in[i] = out[i] = number(rank, i);
              const Request request{.kind = Kind::kAllReduce,
                                    .dtype = DType::kF64,
                                    .in = in_place ? out.data() : in.data(),
                                    .out = out.data(),
                                    .count = count};
              const Status status = drive(*world.start(rank, request, algorithm, 1, 4096));
              ASSERT_TRUE(status.ok()) << to_string(status.error());
              for (std::size_t i = 0; i < count; ++i) {
                double sum = 0;
                for (int r = 0; r < size; ++r) sum += number(r, i);
                ASSERT_EQ(out[i], sum) << "size " << size << " count " << count << " element " << i;
              }
            });
          }
          for (auto& thread : threads) thread.join();
        }
      }
    }
  }
}

// Bytes that arrive one at a time never split the addition of an element.
TEST(PlanOperation, AddsElementsThatArriveInPieces) {
  World world(3, 13);
  std::vector<std::vector<double>> data(3, std::vector<double>(50));
  std::vector<std::unique_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < 50; ++i) data[rank][i] = number(rank, i);
    const Request request{
        .kind = Kind::kAllReduce, .dtype = DType::kF64, .in = data[rank].data(), .out = data[rank].data(), .count = 50};
    operations.push_back(world.start(rank, request, all_reduce_ring));
  }
  const Status status = drive_all(operations);
  ASSERT_TRUE(status.ok()) << to_string(status.error());
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(data[1][i], number(0, i) + number(1, i) + number(2, i));
}

template <class T>
void check_16_bit(DType dtype, T (*to)(float), float ulp_of_one) {
  // 1 and four times 0.4 ulp. If added in 16 bits one after another, the small values would be lost.
  constexpr int kSize = 5;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    for (const Algo algorithm : {all_reduce_ring, all_reduce_recursive_doubling}) {
      World world(kSize);
      std::vector<std::vector<T>> data(kSize, std::vector<T>(33));
      std::vector<std::unique_ptr<Operation>> operations;
      float sum = 0;
      for (int rank = 0; rank < kSize; ++rank) {
        const float value = to_float(to(rank == 0 ? 1.f : 0.4f * ulp_of_one));
        sum += value;
        std::fill(data[rank].begin(), data[rank].end(), to(value));
        const Request request{.kind = Kind::kAllReduce,
                              .dtype = dtype,
                              .op = op,
                              .in = data[rank].data(),
                              .out = data[rank].data(),
                              .count = 33};
        EXPECT_EQ(wire_dtype(request), DType::kF32);
        operations.push_back(world.start(rank, request, algorithm));
      }
      const Status status = drive_all(operations);
      ASSERT_TRUE(status.ok()) << to_string(status.error());
      const T expected = to(op == ReduceOp::kAvg ? sum / kSize : sum);
      for (int rank = 0; rank < kSize; ++rank) {
        for (const T value : data[rank])
          EXPECT_EQ(value.bits, expected.bits) << name(dtype) << " " << name(op) << " " << to_float(value);
      }
    }
  }
}
TEST(PlanOperation, SixteenBitSumsRoundOnce) {
  check_16_bit<Half>(DType::kF16, to_half, 0x1p-10f);
  check_16_bit<BFloat16>(DType::kBF16, to_bfloat16, 0x1p-7f);
}

TEST(PlanOperation, SixteenBitReduceAndReduceScatterOutOfPlace) {
  constexpr int kSize = 3;
  World world(kSize);
  std::vector<std::vector<BFloat16>> in(kSize), parts(kSize, std::vector<BFloat16>(4));
  std::vector<BFloat16> total(12);
  std::vector<std::unique_ptr<Operation>> operations;
  for (int rank = 0; rank < kSize; ++rank) {
    for (int i = 0; i < 12; ++i) in[rank].push_back(to_bfloat16(float(rank + i)));
    const Request request{.kind = Kind::kReduceScatter,
                          .dtype = DType::kBF16,
                          .in = in[rank].data(),
                          .out = parts[rank].data(),
                          .count = 4};
    operations.push_back(world.start(rank, request, reduce_scatter_ring));
  }
  ASSERT_TRUE(drive_all(operations).ok());
  operations.clear();
  for (int rank = 0; rank < kSize; ++rank) {
    const Request request{.kind = Kind::kReduce,
                          .dtype = DType::kBF16,
                          .op = ReduceOp::kAvg,
                          .root = 1,
                          .in = in[rank].data(),
                          .out = rank == 1 ? total.data() : nullptr,
                          .count = 12};
    operations.push_back(world.start(rank, request, reduce_binomial, 2));
  }
  ASSERT_TRUE(drive_all(operations).ok());
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(to_float(parts[i / 4][i % 4]), 3.f * i + 3);
    EXPECT_EQ(to_float(total[i]), float(i) + 1);
    EXPECT_EQ(to_float(in[2][i]), float(2 + i)) << "the input was changed";
  }
}

TEST(PlanOperation, IntegersAverageTowardsZero) {
  World world(2);
  std::vector<std::int32_t> data[2] = {{-3, 5}, {0, 4}};
  std::vector<std::unique_ptr<Operation>> operations;
  for (int rank = 0; rank < 2; ++rank) {
    const Request request{.kind = Kind::kAllReduce,
                          .dtype = DType::kI32,
                          .op = ReduceOp::kAvg,
                          .in = data[rank].data(),
                          .out = data[rank].data(),
                          .count = 2};
    operations.push_back(world.start(rank, request, all_reduce_ring));
  }
  ASSERT_TRUE(drive_all(operations).ok());
  EXPECT_EQ(data[0], (std::vector<std::int32_t>{-1, 4}));
  EXPECT_EQ(data[1], data[0]);
}

TEST(PlanOperation, AllToAllWithSplits) {
  World world(3);
  // Rank r sends r + p elements to rank p.
  std::vector<std::vector<std::size_t>> in_splits(3), out_splits(3);
  std::vector<std::vector<std::int64_t>> in(3), out(3);
  std::vector<std::unique_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    for (int peer = 0; peer < 3; ++peer) {
      in_splits[rank].push_back(rank + peer);
      out_splits[rank].push_back(rank + peer);
      in[rank].insert(in[rank].end(), rank + peer, rank * 10 + peer);
      out[rank].insert(out[rank].end(), rank + peer, -1);
    }
    const Request request{.kind = Kind::kAllToAll,
                          .dtype = DType::kI64,
                          .in = in[rank].data(),
                          .out = out[rank].data(),
                          .in_splits = in_splits[rank],
                          .out_splits = out_splits[rank]};
    operations.push_back(world.start(rank, request, all_to_all_pairwise));
  }
  ASSERT_TRUE(drive_all(operations).ok());
  EXPECT_EQ(out[0], (std::vector<std::int64_t>{10, 20, 20}));
  EXPECT_EQ(out[2], (std::vector<std::int64_t>{2, 2, 12, 12, 12, 22, 22, 22, 22}));
}

TEST(PlanOperation, ConsecutiveOperationsShareTheLinks) {
  World world(4);
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    std::vector<std::int64_t> value(4);
    std::vector<std::unique_ptr<Operation>> operations;
    for (int rank = 0; rank < 4; ++rank) {
      value[rank] = rank == int(sequence % 4) ? int(sequence) : -1;
      const Request request{.kind = Kind::kBroadcast,
                            .dtype = DType::kI64,
                            .root = std::int32_t(sequence % 4),
                            .out = &value[rank],
                            .count = 1};
      operations.push_back(world.start(rank, request, sequence % 2 ? broadcast_binomial : broadcast_chain, sequence));
    }
    ASSERT_TRUE(drive_all(operations).ok());
    EXPECT_EQ(value, std::vector<std::int64_t>(4, int(sequence)));
  }
}

// The first error of an operation in which rank 0 calls `ours` and rank 1 calls `theirs`.
std::string mismatch(const Request& ours, Algo our_plan, const Request& theirs, Algo their_plan) {
  World world(2);
  auto other = world.start(1, theirs, their_plan, 7), own = world.start(0, ours, our_plan, 7);
  for (int i = 0; i < 100; ++i) {
    auto progress = own->step();
    if (!progress.ok()) return to_string(progress.error());
    (void)other->step();
  }
  return "";
}

TEST(PlanOperation, DifferentCallsFailAtOnce) {
  float a[8] = {}, b[8] = {};
  const Request ours{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = a, .out = a, .count = 8};
  const Request fewer{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = b, .out = b, .count = 7};
  const Request barrier{.kind = Kind::kBarrier};
  EXPECT_THAT(mismatch(ours, all_reduce_ring, fewer, all_reduce_ring),
              HasSubstr("Mismatch: all_reduce #7 (f32[8], sum): rank 1 at inproc called all_reduce #7 (f32[7], sum), "
                        "this rank all_reduce #7 (f32[8], sum)"));
  EXPECT_THAT(mismatch(ours, all_reduce_recursive_doubling, barrier, barrier_dissemination),
              HasSubstr("rank 1 at inproc called barrier #7, this rank all_reduce #7"));
  EXPECT_THAT(mismatch(barrier, barrier_dissemination, ours, all_reduce_ring),
              HasSubstr("rank 1 at inproc called all_reduce #7 (f32[8], sum), this rank barrier #7"));
}

TEST(PlanOperation, DifferentCallsWithoutDataFailToo) {
  float b[8] = {};
  const Request nothing{.kind = Kind::kAllReduce, .dtype = DType::kF32},
      some{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = b, .out = b, .count = 8};
  EXPECT_THAT(mismatch(nothing, all_reduce_ring, some, all_reduce_ring),
              HasSubstr("rank 1 at inproc called all_reduce #7 (f32[8], sum), this rank all_reduce #7 (f32[0], sum)"));
  EXPECT_THAT(mismatch(some, all_reduce_ring, nothing, all_reduce_ring),
              HasSubstr("rank 1 at inproc called all_reduce #7 (f32[0], sum)"));
}

TEST(PlanOperation, NamesALostPeer) {
  World world(3);
  float data[8] = {};
  const Request request{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = data, .out = data, .count = 8};
  auto operation = world.start(0, request, all_reduce_ring, 42);
  ASSERT_TRUE(operation->step().ok());
  world.lose(2);
  const Status status = drive(*operation);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_string(status.error()), "PeerLost: all_reduce #42 (f32[8], sum): rank 2 at inproc left the group");
}

TEST(PlanOperation, ReportsThePeersItWaitsFor) {
  World world(3);
  float data[8] = {};
  const Request request{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = data, .out = data, .count = 8};
  auto operation = world.start(0, request, all_reduce_ring);
  while (*operation->step() == Progress::kMoved) {
  }
  Blockers blockers;
  operation->blockers(blockers);
  EXPECT_EQ(blockers.ranks, std::vector<int>{2}) << "the previous rank of the ring";
  EXPECT_TRUE(blockers.needs_bell);
  EXPECT_TRUE(blockers.fds.empty());
}

// Forwards to another link as a link with a descriptor would, and records when it is to be woken.
class Polled final : public transport::Link {
 public:
  explicit Polled(transport::Link* link) : link_(link) {}
  Result<std::size_t> try_send(std::span<const iovec> buffers) override { return link_->try_send(buffers); }
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override { return link_->try_recv(buffers); }
  std::size_t peek(std::span<std::byte> into) override { return link_->peek(into); }
  int poll_fd() const override { return 0; }
  void wake_at(std::size_t bytes) override { woken_at = bytes; }
  std::string peer_address() const override { return link_->peer_address(); }
  std::size_t woken_at = 0;

 private:
  transport::Link* link_;
};

// The header of a different call arrives alone. A rank that waits for more bytes would detect it late.
TEST(PlanOperation, SleepsForTheHeaderThenForTheRemainingBytes) {
  constexpr std::size_t kCount = 50'000, kBytes = kCount * 4, kHalf = kBytes / 2;
  World world(2, kHalf / 2);  // a link holds less than one send
  std::vector<float> data[2] = {std::vector<float>(kCount), std::vector<float>(kCount)};
  const auto request = [&](int rank) {
    float* const mine = data[rank].data();
    return Request{.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = mine, .out = mine, .count = kCount};
  };
  const auto step = [](Operation& operation) {
    while (*operation.step() == Progress::kMoved) {
    }
    Blockers blockers;
    operation.blockers(blockers);
    return blockers;
  };
  Polled link(world.links(0)[1]);
  transport::Link* const links[] = {nullptr, &link};
  PlanMemory memory;
  auto plan = std::make_shared<const Plan>(all_reduce_ring(shape_of(request(0), 0, 2)));
  const auto mine = make_plan_operation(DType::kF32, std::move(plan), links, 0, 2, memory);
  mine->begin(request(0), 1);
  EXPECT_TRUE(step(*mine).much) << "it has more to send than the link takes";
  EXPECT_EQ(link.woken_at, 1u);
  auto theirs = world.start(1, request(1), all_reduce_ring);
  (void)step(*theirs);
  EXPECT_TRUE(step(*mine).much);
  EXPECT_GT(link.woken_at, 1000u);
  EXPECT_LT(link.woken_at, kHalf);
}

}  // namespace
}  // namespace tutti::comm
