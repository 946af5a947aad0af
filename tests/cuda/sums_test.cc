// Sums that ranks of one host add on their GPUs have the bits of those that the ranks add on the CPU. The GPUs are real
// ones with TUTTI_REAL_GPUS, else doubles.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/cuda/worlds.h"
#include "tutti/tensor/collectives.h"

namespace tutti::test {
namespace {

struct Sum {
  at::ScalarType type;
  DType dtype;
  ReduceOp op;
  bool is_on_gpu = true;  // else staged
};

const Sum kSums[] = {
    {at::kFloat, DType::kF32, ReduceOp::kSum},
    {at::kFloat, DType::kF32, ReduceOp::kAvg},
    {at::kFloat, DType::kF32, ReduceOp::kProduct},
    {at::kFloat, DType::kF32, ReduceOp::kMax, false},
    {at::kDouble, DType::kF64, ReduceOp::kAvg},
    {at::kHalf, DType::kF16, ReduceOp::kSum},
    {at::kBFloat16, DType::kBF16, ReduceOp::kSum},
    {at::kBFloat16, DType::kBF16, ReduceOp::kAvg},
    {at::kBFloat16, DType::kBF16, ReduceOp::kProduct},
    {at::kChar, DType::kI8, ReduceOp::kSum},
    {at::kByte, DType::kU8, ReduceOp::kProduct},
    {at::kInt, DType::kI32, ReduceOp::kAvg},
    {at::kLong, DType::kI64, ReduceOp::kMin},
    {at::kLong, DType::kI64, ReduceOp::kMax},
    {at::kInt, DType::kI32, ReduceOp::kBxor},
    {at::kByte, DType::kU8, ReduceOp::kBand},
    {at::kInt, DType::kI32, ReduceOp::kBor},
    {at::kBool, DType::kBool, ReduceOp::kSum},
    {at::kComplexFloat, DType::kC64, ReduceOp::kSum, false},
};

// Values whose sum depends on the order.
at::Tensor values(const Group& world, at::ScalarType type, std::int64_t count) {
  at::manual_seed(std::uint64_t(world.rank()) + 1);
  const at::Tensor uneven = at::randn({count}, at::kDouble) * at::randn({count}, at::kDouble).mul(3).exp();
  if (type == at::kBool) return uneven > 0;
  return c10::isIntegralType(type, false) ? uneven.mul(50).clamp(-100, 100).abs().to(type) : uneven.to(type);
}

void check_bits(const at::Tensor& on_gpu, const at::Tensor& on_cpu, const std::string& what) {
  const at::Tensor mine = on_gpu.cpu();
  check(std::memcmp(mine.data_ptr(), on_cpu.data_ptr(), std::size_t(mine.nbytes())) == 0, what, " has other bits");
}

void check_all_reduce(const Group& world, const Sum& sum, std::int64_t count) {
  const at::Tensor in = values(world, sum.type, count);
  at::Tensor on_cpu = in.clone(), on_gpu = in.to(at::Device(world.device()));
  all_reduce(world, on_cpu, sum.op);
  all_reduce(world, on_gpu, sum.op);
  const std::string what = "all_reduce of " + std::to_string(count) + " " + name(sum.dtype) + " " + name(sum.op);
  check_bits(on_gpu, on_cpu, what);
  const std::string way = world.plan_name(
      {.kind = Kind::kAllReduce, .dtype = sum.dtype, .op = sum.op, .count = std::size_t(count), .device = 0});
  const bool is_small = count * std::int64_t(size_of(sum.dtype)) <= 16 << 10;
  check(way == (sum.is_on_gpu && !is_small ? "ipc" : "staged"), what, " is ", way);
}

class SumsOnGpus : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SumsOnGpus, ::testing::Values(2, 3, 4));

TEST_P(SumsOnGpus, HaveTheBitsOfTheCpu) {
  const auto body = [](Group& world) {
    for (const Sum& sum : kSums)
      for (const std::int64_t count : {1, 1000, 70'001}) check_all_reduce(world, sum, count);
  };
  EXPECT_EQ(describe(run_processes(GetParam(), body, with_gpus(kIpc))), "");
}

TEST_P(SumsOnGpus, OfOtherVerbsHaveThemToo) {
  const auto body = [](Group& world) {
    const std::int64_t n = world.size(), count = 5000;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor in = values(world, type, n * count), in_there = in.to(at::Device(world.device()));
      at::Tensor out = at::zeros({count}, type), out_there = out.to(at::Device(world.device()));
      reduce_scatter(world, in, out, ReduceOp::kAvg);
      reduce_scatter(world, in_there, out_there, ReduceOp::kAvg);
      check_bits(out_there, out, "reduce_scatter");
      at::Tensor here = at::zeros_like(in), there = at::zeros_like(in_there);
      reduce(world, in, here, int(n) - 1);
      reduce(world, in_there, there, int(n) - 1);
      if (world.rank() == n - 1) check_bits(there, here, "reduce");
    }
  };
  EXPECT_EQ(describe(run_processes(GetParam(), body, with_gpus(kIpc))), "");
}

// LibTorch keeps temporary memory that is freed. The double counts it.
TEST(TemporaryMemoryOfSums, ServesTheNextSum) {
  constexpr std::int64_t kCount = 1 << 20;
  const auto body = [](Group& world) {
    at::Tensor values = at::ones({kCount}, at::TensorOptions(at::kBFloat16).device(at::Device(world.device())));
    for (int i = 0; i < 20; ++i) all_reduce(world, values, ReduceOp::kAvg);
  };
  // Each rank adds a half in f32. There is room for the values and three such halves.
  const auto most = std::to_string(kCount * 2 + 3 * (kCount / 2 * 4));
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(kIpc, {{"FAKE_CUDA_MEMORY", most}}))), "");
}

}  // namespace
}  // namespace tutti::test
