#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/base/sanitizers.h"
#include "tutti/checkpoint/tensor_file.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/module_state.h"

#if !TUTTI_ASAN && !TUTTI_TSAN  // they have a posix_memalign of their own
namespace {
std::atomic<bool> pages_only = false;  // like jemalloc from 16 KiB on
}
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  *memory = std::aligned_alloc(pages_only ? std::max<std::size_t>(alignment, 4096) : alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
#endif

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutti::test::check;

using test::error_of;

// Memory of its own, counted.
struct FakeHeap {
  std::atomic<int> live{0}, given{0};
  bool exhausted = false;
  HeapTensors::Source source() {
    return [this](std::size_t bytes) -> Result<std::shared_ptr<std::byte>> {
      if (exhausted) return Error{.code = Code::kLimit, .detail = "no more"};
      ++live, ++given;
      return std::shared_ptr<std::byte>(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)),
                                        [this](std::byte* p) {
                                          --live;
                                          std::free(p);
                                        });
    };
  }
};

constexpr std::int64_t kLarge = 1 << 18;  // floats: 1 MiB

TEST(CachingAllocator, ReusesWhatWasLetGo) {
  install_caching_allocator();
  auto first = at::empty({kLarge});
  const void* where = first.data_ptr();
  first = at::Tensor();
  const auto before = caching_allocator_stats();
  auto second = at::empty({kLarge - 5});  // of the same size class
  EXPECT_EQ(second.data_ptr(), where);
  const auto after = caching_allocator_stats();
  EXPECT_EQ(after.reused_blocks, before.reused_blocks + 1);
  EXPECT_EQ(after.fresh_blocks, before.fresh_blocks);
  EXPECT_EQ(std::uintptr_t(second.data_ptr()) % 64, 0u);
}

TEST(CachingAllocator, EverySizeIsWritableToItsEnd) {
  install_caching_allocator();
  for (std::int64_t bytes : {0, 1, 63, 65535, 65536, 65537, 73728, 73729, 131072, 131073, 1000003}) {
    auto tensor = at::full({bytes}, 7, at::kByte);
    EXPECT_EQ(tensor.sum().item<std::int64_t>(), 7 * bytes);
  }
}

TEST(CachingAllocator, FreesByTheBarePointer) {
  install_caching_allocator();
  auto* allocator = c10::GetCPUAllocator();
  std::vector<void*> all;
  for (std::size_t bytes : {1, 4000, 4096, 4097, 65535, 65536, 200000}) {
    for (int i = 0; i < 200; ++i) all.push_back(allocator->raw_allocate(bytes));
  }
  for (auto* data : all) allocator->raw_deallocate(data);
  EXPECT_EQ(allocator->raw_allocate(0), nullptr);
}

#if !TUTTI_ASAN && !TUTTI_TSAN  // they have a posix_memalign of their own
TEST(CachingAllocator, WorksOverAMallocThatGivesWholePages) {
  install_caching_allocator();
  pages_only = true;
  for (const std::int64_t elements : {1, 100, 5000, 8000})
    for (int again = 0; again < 2; ++again) {
      const at::Tensor tensor = at::full({elements}, 7.0f);
      EXPECT_EQ(tensor.sum().item<float>(), 7.0f * float(elements));
    }
  pages_only = false;
}
#endif

TEST(CachingAllocator, SaysThatThereIsNoMemory) {
  install_caching_allocator();
  const auto live = at::empty({kLarge});
  const auto error = [](std::int64_t bytes) { return error_of([=] { at::empty({bytes}, at::kByte); }); };
  EXPECT_THAT(error((std::int64_t(1) << 47) + 1), HasSubstr("no memory for a tensor of 140737488355329 bytes"));
  EXPECT_THAT(error((std::int64_t(1) << 48) + 1), HasSubstr("no memory for a tensor of 281474976710657 bytes"));
  EXPECT_THAT(error(std::int64_t(1) << 50), HasSubstr("no memory for a tensor of 1125899906842624 bytes"));
  EXPECT_THAT(error(std::int64_t(1) << 62), HasSubstr("no memory for a tensor of 4611686018427387904 bytes"));
}

TEST(CachingAllocator, KeepsNothingWithALimitOfZero) {
  install_caching_allocator({.max_idle_bytes = 0});
  at::empty({kLarge});
  EXPECT_EQ(caching_allocator_stats().idle_bytes, 0u);
  install_caching_allocator();
  at::empty({kLarge});
  EXPECT_GT(caching_allocator_stats().idle_bytes, 0u);
  release_idle_tensor_memory();
  EXPECT_EQ(caching_allocator_stats().idle_bytes, 0u);
}

TEST(HeapTensors, LargeTensorsComeFromTheHeapAndSmallOnesDoNot) {
  FakeHeap heap;
  {
    HeapTensors attached(heap.source());
    auto small = at::empty({16});
    EXPECT_EQ(heap.given, 0);
    auto large = at::empty({kLarge});
    EXPECT_EQ(heap.given, 1);
    large = at::Tensor();
    large = at::empty({kLarge});
    EXPECT_EQ(heap.given, 1) << "the idle block was there";
    EXPECT_EQ(heap.live, 1);
  }
  EXPECT_EQ(heap.live, 0) << "idle and let go blocks leave with the heap";
}

TEST(HeapTensors, ARankWithoutPeersOnItsHostKeepsPrivateMemory) {
  for (const int ranks : {1, 2}) {
    const auto outcomes = test::run_processes(ranks, [&](Group& world) {
      const HeapTensors attached(world);
      const auto tensor = at::empty({kLarge});
      check((caching_allocator_stats().heap_bytes > 0) == (ranks > 1), caching_allocator_stats().heap_bytes,
            " bytes in the heap");
    });
    EXPECT_EQ(test::describe(outcomes), "") << ranks << " ranks";
  }
}

TEST(HeapTensors, TensorsOutliveIt) {
  FakeHeap heap;
  at::Tensor tensor;
  {
    HeapTensors attached(heap.source());
    tensor = at::ones({kLarge});
  }
  EXPECT_EQ(tensor.sum().item<float>(), float(kLarge));
  EXPECT_EQ(heap.live, 1);
  tensor = at::Tensor();
  EXPECT_EQ(heap.live, 0);
}

TEST(HeapTensors, MemoryThatBeginsWithinAPageWillDo) {
  HeapTensors attached([](std::size_t bytes) -> Result<std::shared_ptr<std::byte>> {
    std::shared_ptr<std::byte[]> memory(new (std::align_val_t(4096)) std::byte[bytes + 64],
                                        [](std::byte* p) { ::operator delete[](p, std::align_val_t(4096)); });
    return std::shared_ptr<std::byte>(memory, memory.get() + 64);
  });
  EXPECT_EQ(at::ones({kLarge}).sum().item<float>(), float(kLarge));
}

TEST(HeapTensors, AnExhaustedHeapFallsBackToPrivateMemory) {
  FakeHeap heap;
  heap.exhausted = true;
  HeapTensors attached(heap.source());
  EXPECT_EQ(at::ones({kLarge}).sum().item<float>(), float(kLarge));
}

TEST(HeapTensors, ThreadsShareIt) {
  FakeHeap heap;
  {
    HeapTensors attached(heap.source());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 300; ++i) {
          auto tensor = at::empty({kLarge / 8 + 4096 * ((t + i) % 5)});
          auto* data = tensor.data_ptr<float>();
          std::fill_n(data, 1000, float(t));
          for (int k = 0; k < 1000; ++k) ASSERT_EQ(data[k], float(t));
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_LE(heap.given, 20);
  }
  EXPECT_EQ(heap.live, 0);
}

TEST(HeapTensors, AForkedChildHasAnAllocatorWithoutTheHeap) {
  FakeHeap heap;
  HeapTensors attached(heap.source());
  auto* of_parent = new at::Tensor(at::ones({kLarge}));
  at::empty({kLarge});  // an idle block
  const int given = heap.given;
  const pid_t child = ::fork();
  if (child == 0) {
    *of_parent = at::Tensor();  // must not touch the heap
    const bool fine = at::empty({kLarge}).defined() && heap.given == given;
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  delete of_parent;
}

TEST(CheckedBytes, SaysWhatIsWrongAndWhatToDo) {
  EXPECT_EQ(checked_bytes(at::ones({2, 3}), "x").count, 6u);
  EXPECT_EQ(checked_bytes(at::ones({2}, at::kBFloat16), "x").dtype, DType::kBF16);
  auto error = [](const at::Tensor& tensor) {
    return error_of([&] { checked_bytes(tensor, "the gradient of fc1.weight"); });
  };
  EXPECT_THAT(error(at::ones({2, 3}).t()),
              AllOf(HasSubstr("the gradient of fc1.weight, f32[3, 2], is not contiguous (strides [1, 3])"),
                    HasSubstr("tensor.contiguous()")));
  EXPECT_THAT(error(at::ones({2}, at::kShort)), AllOf(HasSubstr("Short[2]"), HasSubstr("tensor.to(torch::kFloat)")));
  EXPECT_THAT(error(at::empty({4}, at::TensorOptions().device(at::kMeta))),
              AllOf(HasSubstr("f32[4] on meta"), HasSubstr("not on the CPU"), HasSubstr("tensor.to(torch::kCPU)")));
  EXPECT_THAT(error(at::ones({2, 2}).to_sparse()), AllOf(HasSubstr("is not dense"), HasSubstr("to_dense()")));
  EXPECT_THAT(error(at::Tensor()), HasSubstr("an undefined tensor"));
}

TEST(ShareOfCores, IsCountedOverTheRanksOfAHostThatMayUseThem) {
  const CoreMask bound[] = {{0x0f}, {0xf0}, {0xf00}, {0xf000, 0}};
  const CoreMask overlapping[] = {{0xff}, {0xff}, {0xf0}, {0, 0b11}};
  const auto outcomes = test::run_threads(4, [&](Group& world) {
    const int rank = world.rank();
    check(share_of_cores(world, bound[rank]) == 4, "bound to four cores each");
    check(share_of_cores(world, {0xffff}) == 4, "sixteen for all");
    check(share_of_cores(world, {0b11}) == 1, "two for all");
    check(share_of_cores(world, CoreMask(20, ~std::uint64_t(0))) == 20 * 64 / 4, "a large machine");
    const int share[] = {3, 3, 1, 2};  // 4/2 + 4/3, 4/3, 2
    check(share_of_cores(world, overlapping[rank]) == share[rank], "overlapping");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(ShareOfCores, IsWhatPrepareComputeReturns) {
  int cores = 0;
  for (const auto word : allowed_cores()) cores += std::popcount(word);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const int share = prepare_compute(world);
    check(share >= 1 && share <= std::max(1, cores / 2), share, " of ", cores);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

class ModuleFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("tutti-module-" + std::to_string(::getpid()) + ".safetensors"))
          .string();
};

TEST_F(ModuleFile, SavesAndLoads) {
  torch::nn::LinearImpl one(3, 4), other(3, 4);
  ASSERT_TRUE(save_tensors(path_, one).ok());
  ASSERT_TRUE(load_tensors(path_, other).ok());
  EXPECT_TRUE(at::equal(one.weight, other.weight));
  EXPECT_TRUE(at::equal(one.bias, other.bias));
  EXPECT_TRUE(other.weight.requires_grad());
}

TEST_F(ModuleFile, NamesTheTensorThatDoesNotFitAndChangesNothing) {
  torch::nn::LinearImpl saved(3, 4), wider(5, 4), bare(torch::nn::LinearOptions(3, 4).bias(false));
  ASSERT_TRUE(save_tensors(path_, saved).ok());
  const auto before = wider.weight.clone();
  EXPECT_THAT(to_string(load_tensors(path_, wider).error()),
              HasSubstr("weight is F32[4, 3] in the file and f32[4, 5] in the model"));
  EXPECT_TRUE(at::equal(wider.weight, before));
  EXPECT_THAT(to_string(load_tensors(path_, bare).error()), HasSubstr("holds bias, which the model does not have"));
  ASSERT_TRUE(save_tensors(path_, bare).ok());
  EXPECT_THAT(to_string(load_tensors(path_, saved).error()),
              HasSubstr("has no tensor bias, which the model has (f32[4])"));
}

}  // namespace
}  // namespace tutti
