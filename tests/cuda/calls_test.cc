// What calls on GPU memory promise beyond the results, which the conformance suite checks: order with the caller's
// stream, calls beside one another, large buffers in pieces, and who carries what.
#include <gmock/gmock.h>

#include <atomic>
#include <numeric>

#include "tests/cuda/worlds.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/stream_calls.h"

namespace tutti::test {
namespace {

// Numbers in GPU memory.
class Numbers {
 public:
  Numbers(const Group& world, std::vector<float> values)
      : values_(std::move(values)), device_(device_of(world)), memory_(device_, bytes()) {
    memory_.upload(values_.data(), bytes(), stream());
  }
  void* stream() const { return stream_of(device_); }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  std::size_t size() const { return values_.size(); }
  std::vector<float> now() const {
    std::vector<float> values(values_.size());
    memory_.download(values.data(), bytes());
    return values;
  }
  void write(std::vector<float> values) {
    values_ = std::move(values);
    memory_.upload(values_.data(), bytes(), stream());
  }
  Request on_device(Request request) const {
    request.device = device_;
    request.stream = stream();
    return request;
  }
  Request all_reduce(Reduction op = ReduceOp::kSum) const {
    return on_device(requests::all_reduce(std::span(data(), size()), op));
  }

 private:
  std::size_t bytes() const { return values_.size() * sizeof(float); }
  std::vector<float> values_;
  const int device_;
  DeviceMemory memory_;
};

std::vector<float> ramp(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = float(i % 1000) * step;
  return values;
}

class CudaCalls : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_all_well(int size, const RankBody& body, std::map<std::string, std::string> more = {}) const {
    EXPECT_EQ(describe(run_processes(size, body, with_gpus(GetParam(), std::move(more)))), "");
  }
};
std::vector<const char*> engines_and_ipc() {
  std::vector<const char*> all = engines();
  all.push_back(kIpc);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Engines, CudaCalls, ::testing::ValuesIn(engines_and_ipc()),
                         [](const auto& info) { return name_of_engine(info.param); });

TEST_P(CudaCalls, TakeTheWayThatIsSaid) {
  expect_all_well(2, [nccl = GetParam() == kNccl, ipc = GetParam() == kIpc](Group& world) {
    const auto way = [&](Request request) {
      const std::string on_host = world.plan_name(request);
      request.device = device_of(world);
      return on_host + " " + world.plan_name(request);
    };
    const std::string native = nccl ? "nccl" : "staged";
    check(way({.kind = Kind::kAllReduce, .dtype = DType::kF32}) == "direct " + native, "a sum");
    check(way({.kind = Kind::kAllReduce, .dtype = DType::kBF16, .op = ReduceOp::kAvg}) == "direct " + native, "avg");
    check(way({.kind = Kind::kAllReduce, .dtype = DType::kBool, .op = ReduceOp::kBor}) == "direct " + native, "or");
    check(way({.kind = Kind::kAllGatherV, .dtype = DType::kC128}) == "direct " + (ipc ? "ipc" : native), "parts");
    check(way({.kind = Kind::kAllReduce, .dtype = DType::kI32, .op = ReduceOp::kBxor}) == "direct staged", "bits");
    check(way({.kind = Kind::kAllReduce, .dtype = DType::kI32, .op = ReduceOp::kAvg}) == "direct staged", "i32 avg");
    Request send{.kind = Kind::kSend, .dtype = DType::kF32, .root = 1 - world.rank(), .count = 64 << 10};
    check(way(send) == "link staged", "a send of 256 KiB");
    ++send.count;
    check(way(send) == (nccl || ipc ? "link ipc" : "link staged"), "a larger one");
  });
}

// What stands on the caller's stream comes first: a stream that is held back holds back the call; where NCCL carries
// it, only the call.
TEST_P(CudaCalls, WaitForWhatStandsOnTheStream) {
  expect_all_well(2, [nccl = GetParam() == kNccl](Group& world) {
    Numbers x(world, {1, 1, 1});
    check(x.now() == std::vector<float>({1, 1, 1}), "uploaded");  // and its memory on the host is free again
    std::atomic<bool> go{false};
    StreamGate gate(device_of(world), x.stream(), go);
    x.write({2, 3, 4});
    const Work work = world.submit(x.all_reduce());
    std::int32_t word = 0;
    for (int i = 0; i < 50; ++i) {
      if (nccl) check(all_reduce(world, 1) == 2, "calls on the host go on");
      if (world.rank() == 0) send(world, std::span<const std::int32_t>(&word, 1), 1);
      if (world.rank() == 1) recv(world, std::span(&word, 1), 0);
    }
    check(!work.done(), "the call did not wait for its stream");
    go = true;
    go.notify_all();
    work.get();
    check(x.now() == std::vector<float>({4, 6, 8}), "not the numbers that were written before the call");
  });
}

// A stream that waits for calls runs what is put on it later after them. Where NCCL carries the calls, the host
// continues while what stands on the stream before them is still held back.
TEST_P(CudaCalls, HoldTheStreamThatWaitsForThem) {
  expect_all_well(2, [nccl = GetParam() == kNccl](Group& world) {
    Numbers x(world, {1, 1, 1});
    check(x.now() == std::vector<float>({1, 1, 1}), "uploaded");
    std::atomic<bool> go{!nccl};
    StreamGate gate(device_of(world), x.stream(), go);
    x.write({2, 3, 4});
    Work last;
    for (int k = 0; k < 3; ++k) {
      last = world.submit(x.all_reduce());
      last.wait_on(x.stream()).or_throw();
      check(last.done() == !nccl, nccl ? "the host waited" : "the call has no end on a stream, and goes on");
    }
    go = true;
    go.notify_all();
    check(x.now() == std::vector<float>({16, 24, 32}), "the stream did not wait for the calls");
    await_stream_calls().or_throw();
    check(last.done(), "a call that was left to the stream goes on");
  });
}

// What is put on the stream after the call is not waited for.
TEST_P(CudaCalls, DoNotWaitForWhatComesAfterThem) {
  expect_all_well(2, [](Group& world) {
    Numbers x(world, {1}), y(world, {1});
    const Work work = world.submit(x.all_reduce());
    std::atomic<bool> go{false};
    StreamGate gate(device_of(world), x.stream(), go);
    work.get();
    go = true;
    go.notify_all();
    check(x.now() == std::vector<float>({2}), "sum");
  });
}

TEST_P(CudaCalls, RunBesideOneAnotherInTheirOrder) {
  expect_all_well(3, [](Group& world) {
    std::vector<std::unique_ptr<Numbers>> all;
    std::vector<Work> works;
    for (int k = 0; k < 20; ++k) {
      all.push_back(std::make_unique<Numbers>(world, std::vector<float>(std::size_t(1) << (k % 14), float(k))));
      works.push_back(world.submit(all.back()->all_reduce()));
      if (k % 3 == 0) check(all_reduce(world, k, ReduceOp::kMax) == k, "a call on the host in between");
      if (k % 4 == 0) works.push_back(world.submit({.kind = Kind::kBarrier, .device = device_of(world)}));
    }
    for (const Work& work : works) work.get();
    for (int k = 0; k < 20; ++k) check(all[std::size_t(k)]->now().back() == float(3 * k), "number ", k);
  });
}

// One buffer, several times, without waiting in between.
TEST_P(CudaCalls, OnTheSameBufferFollowOneAnother) {
  expect_all_well(2, [](Group& world) {
    Numbers x(world, std::vector<float>(1000, 1));
    std::vector<Work> works;
    for (int k = 0; k < 10; ++k) works.push_back(world.submit(x.all_reduce()));
    for (const Work& work : works) work.get();
    check(x.now() == std::vector<float>(1000, 1024), "1024 is 2 to the 10th");
  });
}

TEST_P(CudaCalls, OfManyMegabytes) {
  expect_all_well(3, [](Group& world) {
    constexpr std::size_t kCount = 5'000'001;  // 20 MB: several pieces, the last one short
    const int me = world.rank(), n = world.size();
    Numbers x(world, ramp(kCount, 1));
    world.run(x.all_reduce()).or_throw();
    check(x.now() == ramp(kCount, float(n)), "all_reduce");

    Numbers one(world, ramp(kCount, float(me + 1))), all(world, std::vector<float>(kCount * std::size_t(n)));
    world
        .run(one.on_device(
            requests::all_gather(world, std::span<const float>(one.data(), kCount), std::span(all.data(), all.size()))))
        .or_throw();
    const std::vector<float> came = all.now();
    for (int r = 0; r < n; ++r) {
      const auto begin = came.begin() + std::ptrdiff_t(kCount) * r;
      check(std::vector<float>(begin, begin + kCount) == ramp(kCount, float(r + 1)), "all_gather from ", r);
    }

    // Rank a has (a + b) * a third for rank b; so the ranks see different numbers of pieces.
    std::vector<std::size_t> ins, outs;
    for (int r = 0; r < n; ++r) ins.push_back(std::size_t(me + r) * 1'000'000), outs.push_back(ins.back());
    const std::size_t total = std::accumulate(ins.begin(), ins.end(), std::size_t(0));
    Numbers give(world, std::vector<float>(total, float(me))), get(world, std::vector<float>(total, -1));
    world
        .run(give.on_device(requests::all_to_all(std::span<const float>(give.data(), total),
                                                 std::span<const std::size_t>(ins), std::span(get.data(), total),
                                                 std::span<const std::size_t>(outs))))
        .or_throw();
    std::vector<float> wanted;
    for (int r = 0; r < n; ++r) wanted.insert(wanted.end(), outs[std::size_t(r)], float(r));
    check(get.now() == wanted, "all_to_all with splits");

    // Only the root knows how long the parts of the others are.
    const std::size_t mine = me == 0 ? 3 : std::size_t(me) * 2'500'000;
    const std::vector<std::size_t> splits = {3, 2'500'000, 5'000'000};
    Numbers part(world, std::vector<float>(mine, float(me))), whole(world, std::vector<float>(7'500'003, -1));
    world
        .run(part.on_device(requests::gather_v(
            world, std::span<const float>(part.data(), mine), std::span(whole.data(), me == 2 ? whole.size() : 0),
            me == 2 ? std::span<const std::size_t>(splits) : std::span<const std::size_t>(), 2)))
        .or_throw();
    if (me == 2) {
      std::vector<float> joined(3, 0.0f);
      joined.insert(joined.end(), 2'500'000, 1.0f);
      joined.insert(joined.end(), 5'000'000, 2.0f);
      check(whole.now() == joined, "gather_v");
    }
  });
}

// Messages of one tag come in the order in which they were sent, whatever their sizes.
TEST_P(CudaCalls, MessagesKeepTheirOrder) {
  expect_all_well(2, [](Group& world) {
    const int peer = 1 - world.rank();
    std::vector<std::unique_ptr<Numbers>> out, in;
    std::vector<Work> works;
    for (int k = 0; k < 12; ++k) {
      const std::size_t count = k % 3 == 0 ? 2'000'000 : 3;
      out.push_back(std::make_unique<Numbers>(world, std::vector<float>(count, float(k))));
      in.push_back(std::make_unique<Numbers>(world, std::vector<float>(count, -1.0f)));
    }
    for (auto& x : out)
      works.push_back(
          world.submit(x->on_device(requests::send(std::span<const float>(x->data(), x->size()), peer, 5))));
    for (auto& x : in)
      works.push_back(world.submit(x->on_device(requests::recv(std::span(x->data(), x->size()), peer, 5))));
    for (const Work& work : works) work.get();
    for (int k = 0; k < 12; ++k)
      check(in[std::size_t(k)]->now() == std::vector<float>(in[std::size_t(k)]->size(), float(k)), "message ", k);
  });
}

TEST_P(CudaCalls, ReceiveFromAnySource) {
  expect_all_well(3, [](Group& world) {
    Numbers x(world, {float(world.rank())});
    if (world.rank() > 0) {
      world.run(x.on_device(requests::send(std::span<const float>(x.data(), 1), 0))).or_throw();
      return;
    }
    for (int k = 0; k < 2; ++k) {
      std::int32_t source = -1;
      world.run(x.on_device(requests::recv_any(std::span(x.data(), 1), source))).or_throw();
      check(x.now() == std::vector<float>{float(source)} && source > 0, "from ", source);
    }
  });
}

// The host does not pack what it cannot read.
TEST_P(CudaCalls, Coalesced) {
  expect_all_well(2, [](Group& world) {
    Numbers a(world, {1}), b(world, {2, 3}), c(world, {4});
    float on_host = 5, also_on_host = 6;
    Coalesced together(world);
    for (const Numbers* x : {&a, &b, &c}) together.add(x->all_reduce());
    together.add(requests::all_reduce(std::span(&on_host, 1), ReduceOp::kSum));
    together.add(requests::all_reduce(std::span(&also_on_host, 1), ReduceOp::kSum));
    together.submit().get();
    check(a.now() == std::vector<float>({2}) && b.now() == std::vector<float>({4, 6}), "a and b");
    check(c.now() == std::vector<float>({8}) && on_host == 10 && also_on_host == 12, "c and the host's");
  });
}

TEST_P(CudaCalls, InSubGroupsAndAlone) {
  expect_all_well(3, [](Group& world) {
    const Group pair = world.split(world.rank() == 0 ? -1 : 0, 0).or_throw();
    if (pair) {
      Numbers x(world, {1, 2});
      pair.run(x.all_reduce()).or_throw();
      check(x.now() == std::vector<float>({2, 4}), "in a group of two");
    }
    const Group alone = world.split(world.rank(), 0).or_throw();
    Numbers x(world, {3}), y(world, {-1});
    alone.run(x.all_reduce(premul_sum(0.5))).or_throw();
    check(x.now() == std::vector<float>({1.5}), "premul_sum alone");
    alone.submit(x.on_device(requests::all_gather(alone, std::span<const float>(x.data(), 1), std::span(y.data(), 1))))
        .get();
    check(y.now() == std::vector<float>({1.5}), "all_gather alone");
  });
}

// Where memory of the heap cannot be pinned, CUDA's own is taken.
TEST_P(CudaCalls, WithoutPinningOfTheHeap) {
  expect_all_well(2,
                  [](Group& world) {
                    Numbers x(world, {1, 2, 3});
                    world.run(x.all_reduce(ReduceOp::kMax)).or_throw();
                    check(x.now() == std::vector<float>({1, 2, 3}), "max");
                  },
                  {{"FAKE_CUDA_NO_REGISTER", "1"}});
}

// The CPU's engine may be any.
TEST(CudaStaged, OverGloo) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        check(world.plan_name({.kind = Kind::kAllReduce, .device = 0}) == "staged", "way");
        Numbers x(world, std::vector<float>(3'000'000, 2));
        world.run(x.all_reduce(ReduceOp::kAvg)).or_throw();
        check(x.now() == std::vector<float>(3'000'000, 2), "avg");
      },
      with_gpus("cpu:gloo,cuda:staged"));
  for (const auto& outcome : outcomes)
    if (outcome.error.find("the engine gloo is not installed") != std::string::npos)
      GTEST_SKIP() << "Gloo is not installed (apt install libgloo-dev, and build again): " << outcome.error;
  EXPECT_EQ(describe(outcomes), "");
}

#ifdef TUTTI_HAS_NCCL
TEST(CudaNccl, OnTwoHosts) {
  if (const std::string lack = lacks_gpus(3); !lack.empty()) GTEST_SKIP() << lack;
  auto options = with_gpus(kNccl);
  options.environment_of = [](int rank) {
    return std::map<std::string, std::string>{{"TUTTI_HOST_ID", rank % 2 ? "odd" : "even"}};
  };
  const auto body = [](Group& world) {
    Numbers x(world, {1, 2});
    world.run(x.all_reduce()).or_throw();
    check(x.now() == std::vector<float>({3, 6}), "by NCCL");
    // An op that NCCL has not: staged, over links.
    const Request request = x.on_device({.kind = Kind::kAllReduce,
                                         .dtype = DType::kI32,
                                         .op = ReduceOp::kBxor,
                                         .in = x.data(),
                                         .out = x.data(),
                                         .count = 2});
    check(world.plan_name(request) == "staged", "way");
    world.run(request).or_throw();
    check(x.now() == std::vector<float>({3, 6}), "three times itself is itself");
  };
  EXPECT_EQ(describe(run_processes(3, body, options)), "");
}

TEST(CudaNccl, TwoRanksOnOneGpuAreStaged) {
  if (const std::string lack = lacks_gpus(2); !lack.empty()) GTEST_SKIP() << lack;
  const auto body = [](Group& world) {
    check(world.plan_name({.kind = Kind::kAllReduce, .device = 0}) == "staged", "NCCL would refuse");
    Numbers x(world, {1, 2});
    world.run(x.all_reduce()).or_throw();
    check(x.now() == std::vector<float>({3, 6}), "sum");
    // Groups in which nobody shares a GPU have NCCL.
    const Group pair = world.split(world.rank() == 2 ? -1 : 0, 0).or_throw();
    if (!pair) return;
    check(pair.plan_name({.kind = Kind::kAllReduce, .device = 0}) == "nccl", "0 and 1 have GPUs of their own");
    pair.run(x.all_reduce()).or_throw();
    check(x.now() == std::vector<float>({6, 12}), "sum of two");
  };
  ::testing::internal::CaptureStderr();
  const auto outcomes =
      run_processes(3, body, with_gpus(kNccl, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"TUTTI_LOG", "warn"}}));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(describe(outcomes), "");
  const std::string line = "ranks 0, 2 of group world compute on one GPU (";
  EXPECT_NE(log.find(line), log.npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
}
#endif

}  // namespace
}  // namespace tutti::test
