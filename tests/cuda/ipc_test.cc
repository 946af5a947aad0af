// Ranks of one host that copy from one another's GPU memory: what they open and close, and what they do where CUDA does
// not let them. The conformance suite checks the results of every verb. On the double, whose handles are as strict as
// CUDA's.
#include <gmock/gmock.h>

#include "tests/cuda/ipc_worlds.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/cuda/ipc_functions.h"
#include "tutti/comm/cuda/ipc_memory.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti::test {
namespace {

// Gathers a number of each rank, on GPUs, and checks it. `number` holds this rank's.
void gather_numbers(const Group& world, DeviceMemory& number) {
  const std::size_t n = std::size_t(world.size());
  const int device = device_of(world);
  const std::int32_t mine = world.rank() * 11;
  DeviceMemory all(device, n * sizeof mine);
  number.upload(&mine, sizeof mine, stream_of(device));
  world
      .run({.kind = Kind::kAllGather,
            .dtype = DType::kI32,
            .in = number.data(),
            .out = all.data(),
            .count = 1,
            .device = device,
            .stream = stream_of(device)})
      .or_throw();
  std::vector<std::int32_t> numbers(n);
  all.download(numbers.data(), n * sizeof mine);
  for (int r = 0; r < world.size(); ++r) check(numbers[std::size_t(r)] == r * 11, "the number of rank ", r);
}
void gather_numbers(const Group& world) {
  DeviceMemory number(device_of(world), sizeof(std::int32_t));
  gather_numbers(world, number);
}

// ---- the double ----

TEST(FakeCudaIpc, HandlesAreAsStrictAsThoseOfCuda) {
  const auto body = [](Group& world) {
    constexpr int kInvalidValue = 1, kInvalidContext = 201;
    const cuda::IpcFunctions& ipc = *cuda::ipc_functions().or_throw();
    const cuda::Runtime& r = *cuda::runtime().or_throw();
    auto mine = std::make_unique<DeviceMemory>(0, 8192);
    cuda::IpcHandle handle;
    void *opened = nullptr, *again = nullptr;
    if (world.rank() == 0) {
      check(ipc.cudaIpcGetMemHandle(&handle, mine->data()) == 0, "get");
      check(ipc.cudaIpcOpenMemHandle(&opened, handle, 1) == kInvalidContext, "opened in the process of the memory");
      send(world, std::span<const std::uint8_t>(handle.bytes), 1);
      barrier(world);
      mine.reset();
      return barrier(world);
    }
    recv(world, std::span<std::uint8_t>(handle.bytes), 0);
    check(ipc.cudaIpcOpenMemHandle(&opened, handle, 1) == 0, "open");
    check(ipc.cudaIpcOpenMemHandle(&again, handle, 1) == 0 && again == opened, "opened twice: one pointer");
    const auto copy = [&] { return r.cudaMemcpyAsync(mine->data(), opened, 4, cuda::kAnyDirection, nullptr); };
    check(ipc.cudaIpcCloseMemHandle(opened) == 0 && copy() == 0, "a copy after it was closed once");
    std::int32_t value = 0;
    mine->download(&value, sizeof value);
    check(ipc.cudaIpcCloseMemHandle(opened) == 0 && copy() == kInvalidValue, "a copy from closed memory");
    check(ipc.cudaIpcCloseMemHandle(opened) == kInvalidValue, "closed too often");
    barrier(world);
    barrier(world);
    check(ipc.cudaIpcOpenMemHandle(&opened, handle, 1) == kInvalidValue, "opened after it was freed");
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(FakeCudaMemory, AFreedBlockLeavesOthersAsTheyAre) {
  const auto body = [](Group&) {
    const std::vector<std::uint8_t> bytes(5000, 7);
    std::vector<std::unique_ptr<DeviceMemory>> blocks;
    for (int i = 0; i < 64; ++i) {  // at most positions in a page
      blocks.push_back(std::make_unique<DeviceMemory>(0, bytes.size()));
      blocks.back()->upload(bytes.data(), bytes.size(), stream_of(0));
    }
    std::vector<std::uint8_t> now(bytes.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i]->download(now.data(), now.size());
      check(now == bytes, "block ", i, " has changed");
      blocks[i].reset();
    }
  };
  EXPECT_EQ(outcome_of(1, body), "");
}

// ---- order ----

// A call has ended when no peer reads its input any longer.
TEST(CudaIpc, TheInputMayBeOverwrittenAfterTheCall) {
  const auto body = [](Group& world) {
    const int device = device_of(world);
    DeviceMemory number(device, sizeof(std::int32_t));
    gather_numbers(world, number);
    const std::int32_t other = -1;
    number.upload(&other, sizeof other, stream_of(device));
    std::int32_t now = 0;
    number.download(&now, sizeof now);
  };
  EXPECT_EQ(outcome_of(2, body, with_variable(1, "FAKE_CUDA_READS_LATE", "300")), "");
}

// ---- what is open ----

TEST(CudaIpc, MemoryIsOpenedOnceAndClosedWithTheGroup) {
  const auto body = [](Group& world) {
    DeviceMemory number(device_of(world), sizeof(std::int32_t));
    {
      const Group copy = world.split(0, world.rank()).or_throw();
      for (int i = 0; i < 3; ++i) gather_numbers(copy, number);
      check(open_handles() == world.size() - 1, "after the same memory three times: ", open_handles());
    }
    check(open_handles() == 0, "after the group: ", open_handles());
  };
  EXPECT_EQ(outcome_of(3, body), "");
}

TEST(CudaIpc, FreedMemoryIsClosed) {
  const auto body = [](Group& world) {
    for (int i = 0; i < 10; ++i) gather_numbers(world);
    check(open_handles() <= 2, "open, of ten allocations that are freed: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// An allocation at the address of a freed one is other memory. In the call in which it is new, the rank looks whether
// three of `kept` are freed, and so does not report the freed one.
TEST(CudaIpc, AddressesAreUsedAgain) {
  const auto body = [](Group& world) {
    const int device = device_of(world);
    std::vector<std::unique_ptr<DeviceMemory>> kept;
    for (int i = 0; i < 4; ++i) {
      kept.push_back(std::make_unique<DeviceMemory>(device, sizeof(std::int32_t)));
      gather_numbers(world, *kept.back());
    }
    gather_numbers(world, *kept.front());
    auto number = std::make_unique<DeviceMemory>(device, sizeof(std::int32_t));
    gather_numbers(world, *number);
    const void* const before = number->data();
    number.reset();
    number = std::make_unique<DeviceMemory>(device, sizeof(std::int32_t));
    check(number->data() == before, "the double gave another address");
    gather_numbers(world, *number);
    check(open_handles() == 5, "open: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpc, WhatIsOpenIsBounded) {
  const auto body = [](Group& world) {
    std::vector<std::unique_ptr<DeviceMemory>> all;
    for (std::size_t i = 0; i < cuda::OpenMemory::kMost + 5; ++i) {
      all.push_back(std::make_unique<DeviceMemory>(device_of(world), sizeof(std::int32_t)));
      gather_numbers(world, *all.back());
    }
    check(open_handles() == int(cuda::OpenMemory::kMost), "open: ", open_handles());
    gather_numbers(world, *all.front());  // it was closed
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// ---- where CUDA does not share memory ----

class CudaIpcFallback : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Errors, CudaIpcFallback, ::testing::Values("FAKE_CUDA_IPC_GET", "FAKE_CUDA_IPC_OPEN"),
                         [](const auto& info) { return std::string(info.param).substr(std::size("FAKE_CUDA_IPC")); });

TEST_P(CudaIpcFallback, OneRankThatCannotMakesAllRanksStage) {
  const auto body = [](Group& world) {
    for (int i = 0; i < 2; ++i) {
      DeviceMemory number(device_of(world), sizeof(std::int32_t));
      gather_numbers(world, number);
      check(open_handles() == 0, "open: ", open_handles());
      gather_numbers(world, number);
    }
  };
  EXPECT_EQ(outcome_of(3, body, with_variable(1, GetParam(), "801")), "");
}

TEST(CudaIpc, AnotherGpuThanThatOfTheFirstCallIsStagedAndLogged) {
  const auto body = [](Group& world) {
    gather_numbers(world);
    const std::int32_t mine = world.rank() == 0 ? 5 : -1;
    const int device = world.rank() == 0 ? 6 : device_of(world);
    DeviceMemory number(device, sizeof mine);
    number.upload(&mine, sizeof mine, stream_of(device));
    const Request request{.kind = Kind::kBroadcast,
                          .dtype = DType::kI32,
                          .out = number.data(),
                          .count = 1,
                          .device = device,
                          .stream = stream_of(device)};
    if (world.rank() == 0) ::testing::internal::CaptureStderr();
    world.run(request).or_throw();
    if (world.rank() == 0)
      expect_words(::testing::internal::GetCapturedStderr(),
                   "rank 0: its buffers are on cuda:6, those of its first call were on cuda:0");
    std::int32_t came = 0;
    number.download(&came, sizeof came);
    check(came == 5, "got ", came);
    gather_numbers(world);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// ---- errors ----

TEST(CudaIpc, DifferentCallsAreReportedOnEveryRank) {
  const auto body = [](Group& world) {
    DeviceMemory from(device_of(world), 64), to(device_of(world), 64);
    const Request request{.kind = world.rank() == 0 ? Kind::kAllGather : Kind::kBroadcast,
                          .dtype = DType::kF32,
                          .in = world.rank() == 0 ? from.data() : nullptr,
                          .out = to.data(),
                          .count = 4,
                          .device = device_of(world)};
    const std::string text = sentence_of([&] { world.run(request).or_throw(); });
    for (const char* const words : {"Mismatch: ", "all_gather #1 (f32[4]", "broadcast #1 (f32[4]"})
      expect_words(text, words);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpc, ACallOnTheHostIsAnotherCall) {
  const auto body = [](Group& world) {
    DeviceMemory memory(device_of(world), 64);
    const Request request{
        .kind = Kind::kBroadcast, .dtype = DType::kF32, .out = memory.data(), .count = 4, .device = device_of(world)};
    const std::string text =
        world.rank() == 0 ? sentence_of([&] { world.run(request).or_throw(); }) : sentence_of([&] { barrier(world); });
    expect_words(text, "Mismatch: ");
    if (world.rank() == 0)
      expect_words(text, "made another call, on memory of the CPU, while this rank called broadcast #1 (f32[4]");
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpc, SizesThatDoNotAgreeAreReported) {
  const auto body = [](Group& world) {
    DeviceMemory from(device_of(world), 64), to(device_of(world), 64);
    const std::vector<std::size_t> in = {1, 2}, out = {world.rank() == 0 ? std::size_t(1) : std::size_t(3), 2};
    const Request request{.kind = Kind::kAllToAll,
                          .dtype = DType::kI32,
                          .in = from.data(),
                          .out = to.data(),
                          .in_splits = in,
                          .out_splits = out,
                          .device = device_of(world)};
    const std::string text = sentence_of([&] { world.run(request).or_throw(); });
    expect_words(text, "elements to this rank, which expects ");
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpc, ARankThatIsKilledWhileItReadsIsNamed) {
  const auto outcomes = run_processes(
      3,
      [](Group& world) {
        const std::string text = sentence_of([&] { gather_numbers(world); });
        for (const char* const words : {"PeerLost: all_gather #1 (i32[1], cuda:", "rank 1 ", "has exited"})
          expect_words(text, words);
      },
      with_variable(1, "FAKE_CUDA_DIES_READING", "1"));
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(outcomes[std::size_t(r)].ok()) << outcomes[std::size_t(r)].error;
}

}  // namespace
}  // namespace tutti::test
