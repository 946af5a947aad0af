// The arithmetic and the copies of the collectives, apart from everything else. Sums of n vectors stand beside memcpy
// of as many bytes: both should run at the speed of the cache or memory that holds them.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

// Zeros in memory that is aligned as buffers of the heap are.
struct Vector {
  explicit Vector(std::size_t bytes) : lines(bytes / sizeof(Line) + 1) {}
  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  void* data() { return lines.data(); }
  std::vector<Line> lines;
};

void sum_of_many(benchmark::State& state, DType dtype) {
  const std::size_t bytes = std::size_t(state.range(0)), ranks = std::size_t(state.range(1));
  std::vector<Vector> vectors(ranks, Vector(bytes));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (Vector& vector : vectors) in.push_back(vector.data()), out.push_back(vector.data());
  for (auto _ : state) {
    comm::reduce_many(dtype, ReduceOp::kSum, in, out, bytes / size_of(dtype), 1);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(std::int64_t(state.iterations() * bytes * ranks * 2));  // each vector is read and written
}
BENCHMARK_CAPTURE(sum_of_many, f32, DType::kF32)->ArgsProduct({{4 << 10, 256 << 10, 16 << 20}, {2, 4}});
BENCHMARK_CAPTURE(sum_of_many, f64, DType::kF64)->ArgsProduct({{256 << 10}, {2}});
BENCHMARK_CAPTURE(sum_of_many, f16, DType::kF16)->ArgsProduct({{256 << 10}, {2}});
BENCHMARK_CAPTURE(sum_of_many, bf16, DType::kBF16)->ArgsProduct({{256 << 10}, {2}});
BENCHMARK_CAPTURE(sum_of_many, i8, DType::kI8)->ArgsProduct({{256 << 10}, {2}});

void sum_of_pair(benchmark::State& state) {
  const std::size_t bytes = std::size_t(state.range(0));
  Vector into(bytes), other(bytes);
  for (auto _ : state) {
    comm::reduce_pair(DType::kF32, ReduceOp::kSum, into.data(), other.data(), bytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(std::int64_t(state.iterations() * bytes * 3));
}
BENCHMARK(sum_of_pair)->Arg(4 << 10)->Arg(256 << 10)->Arg(16 << 20);

template <auto kCopy>
void copy(benchmark::State& state) {
  const std::size_t bytes = std::size_t(state.range(0));
  Vector to(bytes), from(bytes);
  for (auto _ : state) {
    kCopy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(std::int64_t(state.iterations() * bytes));
}
void plain_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
BENCHMARK(copy<comm::copy_bytes>)->Name("copy_bytes")->Arg(4 << 10)->Arg(256 << 10)->Arg(16 << 20)->Arg(64 << 20);
BENCHMARK(copy<plain_copy>)->Name("memcpy")->Arg(4 << 10)->Arg(256 << 10)->Arg(16 << 20)->Arg(64 << 20);

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
