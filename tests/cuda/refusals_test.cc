// What a call on GPU memory says where there is no GPU, or not this one; and how staged calls fail.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "tests/cuda/worlds.h"
#include "tests/fakes/cuda/cudart.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti::test {
namespace {

// A call on memory of this device; the buffers do not matter, since it is refused before they are looked at.
std::string refusal(const Group& world, int device) {
  const Request request{.kind = Kind::kAllReduce,
                        .dtype = DType::kF32,
                        .in = reinterpret_cast<void*>(64),
                        .out = reinterpret_cast<void*>(64),
                        .count = 1,
                        .device = device};
  const Status status = world.run(request);
  check(!status.ok(), "the call went well");
  const std::string text = to_string(status.error());
  check(text.find("all_reduce #0 (f32[1], sum, cuda:" + std::to_string(device) + ") on group world, rank ") !=
            std::string::npos,
        text);
  check(all_reduce(world, 1) == world.size(), "the group is as good as before");
  return text;
}

void expect_refused(int device, const std::string& words, std::map<std::string, std::string> environment) {
  const auto body = [&](Group& world) { expect_words(refusal(world, device), words); };
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(kStaged, environment))), "");
  EXPECT_EQ(describe(run_processes(1, body, with_gpus(kStaged, environment))), "");
}

TEST(CudaRefusals, NoRuntime) {
  expect_refused(0,
                 "the CUDA runtime cannot be loaded: tried libcudart.so.13, libcudart.so.12, libcudart.so.11.0, "
                 "libcudart.so in /nowhere and /neither (TUTTI_CUDA_PATH) (hint: install it, or name its folder: "
                 "TUTTI_CUDA_PATH=/usr/local/cuda/lib64)",
                 {{"TUTTI_CUDA_PATH", "/nowhere:/neither"}});
}

TEST(CudaRefusals, NoDriver) {
  expect_refused(
      0, "CUDA finds no NVIDIA driver, or one that is older than the runtime (hint: nvidia-smi shows the driver",
      {{"FAKE_CUDA_ERROR", "35"}});
}

TEST(CudaRefusals, NoDevice) {
  expect_refused(0, "CUDA finds no GPU (hint: nvidia-smi shows the GPUs, CUDA_VISIBLE_DEVICES may hide them)",
                 {{"FAKE_CUDA_DEVICES", "0"}});
}

TEST(CudaRefusals, NotThisDevice) {
  expect_refused(3, "there is no device cuda:3, 2 are visible to this process", {{"FAKE_CUDA_DEVICES", "2"}});
}

constexpr const char* kTaken =
    "CUDA could not make an event: CUDA-capable device(s) is/are busy or unavailable (error 46) (hint: another process "
    "has this GPU in exclusive mode (nvidia-smi -q -d COMPUTE; as root: nvidia-smi -c DEFAULT), or the driver has lost "
    "it (dmesg | grep -i xid))";

TEST(CudaRefusals, AGpuThatAnotherProcessHasForItself) { expect_refused(0, kTaken, {{"FAKE_CUDA_UNAVAILABLE", "1"}}); }

// The double of the runtime is loaded, not linked.
void lose(int device) {
  void* const runtime = ::dlopen(TUTTI_FAKE_CUDA "/libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  check(runtime != nullptr, "the double of the CUDA runtime is not loaded");
  reinterpret_cast<decltype(&fake_cuda_lose)>(::dlsym(runtime, "fake_cuda_lose"))(device);
}

// The call of the rank says what is wrong, and those of its peers name the rank.
TEST(CudaStaged, ALostGpuIsReported) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const int device = device_of(world);
        DeviceMemory memory(device, 4);
        const Request request{.kind = Kind::kAllReduce,
                              .dtype = DType::kF32,
                              .in = memory.data(),
                              .out = memory.data(),
                              .count = 1,
                              .device = device};
        world.run(request).or_throw();
        const std::string own = "unspecified launch failure (error 719) (hint: a kernel failed, or the GPU is lost: ";
        if (world.rank() == 1) {
          lose(device);
          const std::string text = sentence_of([&] { world.run(request).or_throw(); });
          expect_words(text, "(f32[1], sum, cuda:" + std::to_string(device) + ") on group world, rank 1: ");
          expect_words(text, own);
          throw std::runtime_error(text);
        }
        expect_words(sentence_of([&] { world.run(request).or_throw(); }), "rank 1");
      },
      with_gpus(kStaged));
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_THAT(outcomes[1].error, ::testing::HasSubstr("unspecified launch failure"));
}

// The same where a call finds no memory to stage its bytes.
TEST(CudaStaged, AHostWithoutMemoryToPinIsReported) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const int device = device_of(world);
        DeviceMemory memory(device, 4);
        if (world.rank() == 1)
          for (const char* failing : {"FAKE_CUDA_NO_REGISTER", "FAKE_CUDA_NO_PINNED"}) ::setenv(failing, "1", 1);
        world
            .run({.kind = Kind::kAllReduce,
                  .dtype = DType::kF32,
                  .in = memory.data(),
                  .out = memory.data(),
                  .count = 1,
                  .device = device})
            .or_throw();
      },
      with_gpus(kStaged));
  EXPECT_THAT(outcomes[0].error, ::testing::HasSubstr("rank 0: rank 1 "));
  EXPECT_THAT(outcomes[1].error, ::testing::AllOf(::testing::HasSubstr("on group world, rank 1: CUDA could not pin "
                                                                       "memory: out of memory (error 2), of which "),
                                                  ::testing::HasSubstr("bytes were needed to stage a call (hint: "
                                                                       "pinned memory is the host's: free -h")));
}

// The deadline of a staged call whose stream does not come to it says so; the peer that waits for it names it.
TEST(CudaStaged, AStreamThatMakesNoProgressIsReported) {
  auto options = with_gpus(kStaged);
  options.timeout = 1;
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const int device = device_of(world);
        DeviceMemory memory(device, 4);
        std::atomic<bool> go{false};
        std::unique_ptr<StreamGate> gate;
        if (world.rank() == 0) gate = std::make_unique<StreamGate>(device, stream_of(device), go);
        const Request request{.kind = Kind::kAllReduce,
                              .dtype = DType::kF32,
                              .in = memory.data(),
                              .out = memory.data(),
                              .count = 1,
                              .device = device,
                              .stream = stream_of(device)};
        const std::string text = sentence_of([&] { world.run(request).or_throw(); });
        expect_words(text, "all_reduce #1 (f32[1], sum, cuda:");
        expect_words(text, "still waiting for");
        // Whoever was first told the other.
        check(text.find("earlier work on the stream of cuda:0") != std::string::npos ||
                  text.find("rank 0") != std::string::npos,
              text);
      },
      options);
  EXPECT_EQ(describe(outcomes), "");
}

TEST(CudaStaged, ARankThatIsKilledIsNamed) {
  auto options = with_gpus(kStaged);
  const auto outcomes = run_processes(
      3,
      [](Group& world) {
        const int device = device_of(world);
        constexpr std::size_t kCount = 8'000'000;
        DeviceMemory memory(device, kCount * 4);
        const Request request{.kind = Kind::kAllReduce,
                              .dtype = DType::kF32,
                              .in = memory.data(),
                              .out = memory.data(),
                              .count = kCount,
                              .device = device};
        world.run(request).or_throw();
        kill_after_all(world, 1);
        const std::string text = sentence_of([&] { world.run(request).or_throw(); });
        expect_words(text, "PeerLost: all_reduce #2 (f32[8000000], sum, cuda:");
        expect_words(text, "rank 1 ");
        expect_words(text, "has exited");
      },
      options);
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(outcomes[std::size_t(r)].ok()) << outcomes[std::size_t(r)].error;
}

}  // namespace
}  // namespace tutti::test
