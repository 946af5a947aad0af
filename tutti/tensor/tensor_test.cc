#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <filesystem>
#include <thread>

#include "tests/harness/ranks.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/checkpoint.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutti::test::check;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
    return "no error";
  } catch (const Exception& e) {
    return e.what();
  }
}

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

TEST(CachingAllocator, SaysThatThereIsNoMemory) {
  install_caching_allocator();
  const auto live = at::empty({kLarge});
  const auto error = [](std::int64_t bytes) { return error_of([=] { at::empty({bytes}, at::kByte); }); };
  EXPECT_THAT(error((std::int64_t(1) << 47) + 1), HasSubstr("no memory for a tensor of 140737488355329 bytes"));
  EXPECT_THAT(error((std::int64_t(1) << 48) + 1), HasSubstr("no memory for a tensor of 281474976710657 bytes"));
  EXPECT_THAT(error(std::int64_t(1) << 50), HasSubstr("no memory for a tensor of 1125899906842624 bytes"));
  EXPECT_THAT(error(std::int64_t(1) << 62), HasSubstr("no memory for a tensor of 4611686018427387904 bytes"));
}

TEST(CachingAllocator, KeepsNothingWhenToldSo) {
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

TEST(TensorCollectives, EveryVerb) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const int rank = world.rank();
    auto mine = at::full({2, 2}, rank + 1, at::kDouble);
    all_reduce(world, mine);
    check(at::equal(mine, at::full({2, 2}, 6, at::kDouble)), "all_reduce");
    auto later = at::full({3}, rank);
    all_reduce_async(world, later, ReduceOp::kMax).get();
    check(at::equal(later, at::full({3}, 2)), "all_reduce_async");
    auto told = at::full({5}, rank, at::kLong);
    broadcast(world, told, 1);
    check(at::equal(told, at::ones({5}, at::kLong)), "broadcast");
    auto own = at::full({2}, rank, at::kInt), everyone = at::empty({3, 2}, at::kInt);
    all_gather(world, own, everyone);
    check(at::equal(everyone, at::arange(3, at::kInt).view({3, 1}).expand({3, 2})), "all_gather");
    auto part = at::empty({2}, at::kInt);
    reduce_scatter(world, everyone, part);
    check(at::equal(part, at::full({2}, 3 * rank, at::kInt)), "reduce_scatter");
    auto gathered = rank == 2 ? at::empty({3, 2}, at::kInt) : at::Tensor();
    gather(world, own, gathered, 2);
    check(rank != 2 || at::equal(gathered, everyone), "gather");
    scatter(world, gathered, part, 2);
    check(at::equal(part, own), "scatter");
    auto sum = at::empty({2}, at::kInt);
    reduce(world, own, sum, 0);
    check(rank != 0 || at::equal(sum, at::full({2}, 3, at::kInt)), "reduce");
    auto swapped = at::empty({3}, at::kInt);
    all_to_all(world, at::arange(3, at::kInt) + 10 * rank, swapped);
    check(at::equal(swapped, at::arange(3, at::kInt) * 10 + rank), "all_to_all");
    auto passed = at::empty({4});
    auto arriving = irecv(world, passed, (rank + 2) % 3);
    send(world, at::full({4}, rank, at::kFloat), (rank + 1) % 3);
    arriving.get();
    check(at::equal(passed, at::full({4}, (rank + 2) % 3, at::kFloat)), "send, recv");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, EveryVerbAsynchronously) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const int rank = world.rank();
    const auto own = at::full({2}, rank, at::kInt);
    const auto everyone = at::arange(3, at::kInt).view({3, 1}).expand({3, 2}).contiguous();
    auto sum = rank == 1 ? at::empty({2}, at::kInt) : at::Tensor();
    auto gathered = rank == 2 ? at::empty({3, 2}, at::kInt) : at::Tensor();
    auto part = at::empty({2}, at::kInt), swapped = at::empty({3}, at::kInt), told = at::full({5}, rank);
    auto parts = at::empty({3, 2}, at::kInt), reduced = at::empty({2}, at::kInt);
    std::vector<TensorWork> works = {
        reduce_async(world, own, sum, 1),
        gather_async(world, own, gathered, 2),
        scatter_async(world, rank == 2 ? everyone : at::Tensor(), part, 2),
        all_to_all_async(world, at::arange(3, at::kInt) + 10 * rank, swapped),  // its input lives on in the work
        broadcast_async(world, told, 1),
        all_gather_async(world, own, parts),
        reduce_scatter_async(world, everyone.clone(), reduced),
    };
    for (const auto& work : works) work.get();
    check(rank != 1 || at::equal(sum, at::full({2}, 3, at::kInt)), "reduce_async");
    check(rank != 2 || at::equal(gathered, everyone), "gather_async");
    check(at::equal(part, own), "scatter_async");
    check(at::equal(swapped, at::arange(3, at::kInt) * 10 + rank), "all_to_all_async");
    check(at::equal(told, at::ones({5})), "broadcast_async");
    check(at::equal(parts, everyone), "all_gather_async");
    check(at::equal(reduced, 3 * own), "reduce_scatter_async");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Rank r sends r + 1 elements to each, so rank r gets 1, 2 and 3.
TEST(TensorCollectives, UnevenPartsGoToEveryRank) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const std::size_t mine = std::size_t(world.rank()) + 1;
    const auto in = at::full({3, std::int64_t(mine)}, world.rank(), at::kDouble);
    const auto expected = at::tensor({0, 1, 1, 2, 2, 2}, at::kDouble);
    auto out = at::empty({6}, at::kDouble), later = at::empty({2, 3}, at::kDouble);
    const std::vector<std::size_t> to(3, mine), from = {1, 2, 3};
    all_to_all(world, in, to, out, from);
    check(at::equal(out, expected), "all_to_all");
    const auto work = all_to_all_async(world, in, std::vector(to), later, std::vector(from));  // the splits are copied
    work.get();
    check(at::equal(later.flatten(), expected), "all_to_all_async");
    const auto error = error_of([&] { all_to_all(world, in, to, at::empty({7}, at::kDouble), from); });
    check(error.find("out is f64[7] with 7 elements, but out_splits sum up to 6") != std::string::npos, error);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Nobody joins the call, so waiting for it would end at the limit of 30 s only.
TEST(TensorWork, AnExceptionEndsTheOperationBeforeTheTensorsGo) {
  bool had_ended = false;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto arriving = at::empty({1});
    if (world.rank() == 1) recv(world, arriving, 0);
    std::vector<float> memory(1000);
    const auto work = all_reduce_async(
        world, at::from_blob(
                   memory.data(), {1000}, [&](void*) { had_ended = !world.status().ok(); }, at::kFloat));
    throw std::runtime_error("the loss is NaN");
  });
  EXPECT_EQ(outcomes[0].error, "the loss is NaN");
  EXPECT_TRUE(had_ended);
  EXPECT_THAT(outcomes[1].error, HasSubstr("an exception drove this rank out of the call"));
}

TEST(TensorCollectives, TellCountsAndTypesThatDoNotFit) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto counts = error_of([&] { all_gather(world, at::ones({3}), at::ones({5})); });
    check(counts.find("all_gather: out is f32[5] with 5 elements; expected 6") != std::string::npos, counts);
    const auto types = error_of([&] { reduce_scatter(world, at::ones({4}), at::ones({2}, at::kDouble)); });
    check(types.find("in is f32[4] and out is f64[2]; expected one element type") != std::string::npos, types);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(TensorCollectives, TellThatThereIsNoGroup) {
  const auto two = at::ones({2});
  EXPECT_THAT(error_of([&] { all_to_all(Group(), two, at::empty({2})); }), HasSubstr("group"));
  EXPECT_THAT(error_of([&] { all_reduce(Group(), two); }), HasSubstr("group"));
}

TEST(TensorCollectives, AutogradSeesThatATensorWasWrittenTo) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    auto tensor = at::ones({2});
    const auto version = tensor._version();
    all_reduce(world, tensor);
    check(tensor._version() == version + 1, "version ", int(tensor._version()));
  });
  EXPECT_EQ(test::describe(outcomes), "");
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
  ASSERT_TRUE(save_module(one, path_).ok());
  ASSERT_TRUE(load_module(other, path_).ok());
  EXPECT_TRUE(at::equal(one.weight, other.weight));
  EXPECT_TRUE(at::equal(one.bias, other.bias));
  EXPECT_TRUE(other.weight.requires_grad());
}

TEST_F(ModuleFile, NamesTheTensorThatDoesNotFitAndChangesNothing) {
  torch::nn::LinearImpl saved(3, 4), wider(5, 4), bare(torch::nn::LinearOptions(3, 4).bias(false));
  ASSERT_TRUE(save_module(saved, path_).ok());
  const auto before = wider.weight.clone();
  EXPECT_THAT(to_string(load_module(wider, path_).error()),
              HasSubstr("weight is F32[4, 3] in the file and f32[4, 5] in the model"));
  EXPECT_TRUE(at::equal(wider.weight, before));
  EXPECT_THAT(to_string(load_module(bare, path_).error()), HasSubstr("holds bias, which the model does not have"));
  ASSERT_TRUE(save_module(bare, path_).ok());
  EXPECT_THAT(to_string(load_module(saved, path_).error()),
              HasSubstr("has no tensor bias, which the model has (f32[4])"));
}

}  // namespace
}  // namespace tutti
