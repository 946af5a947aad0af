// For every dtype, op and shape, each instruction set of this CPU gives the same bits as the plainest loop.
#include "tutti/comm/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/base/float16.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::comm {
namespace {

struct Loop {
  const char* name;
  void (*run)(const kernels::Inputs&);
};

std::vector<Loop> loops() {
  std::vector<Loop> all = {{"generic", kernels::generic::reduce}};
#ifdef __x86_64__
  if (cpu_has(Isa::kAvx2)) all.push_back({"avx2", kernels::avx2::reduce});
  if (cpu_has(Isa::kAvx512)) all.push_back({"avx512", kernels::avx512::reduce});
#endif
  return all;
}

// Random bits include hard cases: NaN, infinities, subnormals, overflow. Booleans are 0 or 1.
std::vector<std::byte> random_elements(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (auto& b : bytes) b = std::byte(dtype == DType::kBool ? random() & 1 : random());
  return bytes;
}

template <class T>
T element(const void* at, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(at) + i * sizeof(T), sizeof(T));
  return value;
}

constexpr double kFactors[] = {0.5, -3, 1.0 / 3, 1, 1e-3, 7, 0};

// All NaNs count as equal: which NaN an addition returns depends on the order of operands in the instruction.
bool same(DType dtype, const void* a, const void* b, std::size_t i) {
  switch (dtype) {
    case DType::kF32:
      if (std::isnan(element<float>(a, i)) && std::isnan(element<float>(b, i))) return true;
      break;
    case DType::kF64:
      if (std::isnan(element<double>(a, i)) && std::isnan(element<double>(b, i))) return true;
      break;
    case DType::kF16:
      if (std::isnan(to_float(element<Half>(a, i))) && std::isnan(to_float(element<Half>(b, i)))) return true;
      break;
    case DType::kBF16:
      if (std::isnan(to_float(element<BFloat16>(a, i))) && std::isnan(to_float(element<BFloat16>(b, i)))) return true;
      break;
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kC64:
    case DType::kC128:
      break;
  }
  const std::size_t size = size_of(dtype);
  return std::memcmp(static_cast<const char*>(a) + i * size, static_cast<const char*>(b) + i * size, size) == 0;
}

TEST(Reduce, EveryInstructionSetAgreesWithOneElementAtATime) {
  for (const Loop& loop : loops())
    for (DType dtype : kDTypes)
      for (ReduceOp op : kReduceOps) {
        if (!check_reduction(dtype, op).ok() || is_complex(dtype)) continue;  // complex: two real numbers, see below
        for (int inputs : {1, 2, 3, 4, 7})
          for (std::size_t count : {0, 1, 63, 64, 1001}) {
            std::vector<std::vector<std::byte>> data;
            std::vector<const void*> in;
            for (int r = 0; r < inputs; ++r) data.push_back(random_elements(dtype, count, unsigned(100 * inputs + r)));
            for (auto& d : data) in.push_back(d.data());
            std::vector<std::byte> expected(count * size_of(dtype)), other = expected;
            // One element at a time never enters the vector loop.
            for (std::size_t i = 0; i < count; ++i) {
              std::vector<const void*> one;
              for (const void* p : in) one.push_back(static_cast<const std::byte*>(p) + i * size_of(dtype));
              void* const out[] = {expected.data() + i * size_of(dtype)};
              kernels::generic::reduce({dtype, op, one.data(), inputs, out, 1, 1, 3, kFactors});
            }
            void* const outs[] = {data[0].data(), other.data()};  // one of them is in place
            loop.run({dtype, op, in.data(), inputs, outs, 2, count, 3, kFactors});
            for (std::size_t i = 0; i < count; ++i) {
              ASSERT_TRUE(same(dtype, data[0].data(), expected.data(), i))
                  << loop.name << " " << name(dtype) << " " << name(op) << " of " << inputs << " at " << i;
              ASSERT_TRUE(same(dtype, other.data(), expected.data(), i)) << "second output";
            }
          }
      }
}

TEST(Reduce, SixteenBitSumsRoundOnce) {
  // 256 + 1 is not a bfloat16 value, but 256 + 1 + 1 is. A sum rounded at every step would stay at 256.
  const BFloat16 big = to_bfloat16(256), one = to_bfloat16(1);
  const void* const in[] = {&big, &one, &one};
  BFloat16 sum;
  void* const out[] = {&sum};
  reduce_many(DType::kBF16, ReduceOp::kSum, in, out, 1, 1);
  EXPECT_EQ(to_float(sum), 258);
}

TEST(Reduce, IntegersWrapAndNaNWinsMinimum) {
  std::int8_t a = 127, b = 1;
  reduce_pair(DType::kI8, ReduceOp::kSum, &a, &b, 1);
  EXPECT_EQ(a, -128);
  float x = std::numeric_limits<float>::quiet_NaN(), y = 1;
  reduce_pair(DType::kF32, ReduceOp::kMin, &y, &x, 1);
  EXPECT_TRUE(std::isnan(y));
}

TEST(Reduce, BooleansAreLogical) {
  std::uint8_t a[] = {0, 0, 1, 1};
  const std::uint8_t b[] = {0, 1, 0, 1};
  reduce_pair(DType::kBool, ReduceOp::kSum, a, b, 4);
  EXPECT_EQ(std::vector<int>(a, a + 4), (std::vector<int>{0, 1, 1, 1}));
}

TEST(Reduce, ComplexNumbersAreAddedAndScaledByPart) {
  const std::complex<double> a[] = {{1, 2}, {-3, 0.5}, {1e300, 0}}, b[] = {{10, 20}, {0.25, 4}, {1e300, 1}};
  const void* const in[] = {a, b};
  std::complex<double> out[3];
  void* const outs[] = {out};
  reduce_many(DType::kC128, ReduceOp::kSum, in, outs, 3, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], a[i] + b[i]);
  reduce_many(DType::kC128, ReduceOp::kAvg, in, outs, 3, 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], (a[i] + b[i]) / 2.0);
  const double factors[] = {0.25, -2};
  reduce_many(DType::kC128, ReduceOp::kPremulSum, in, outs, 3, 1, factors);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], a[i] * 0.25 + b[i] * -2.0);
}

TEST(Reduce, APremultipliedSumOfSixteenBitsRoundsOnce) {
  // 2049 is not a half value, and a product rounded on its own would become 2048. 2049 * 1 + 1 * 1 is 2050.
  const Half a = to_half(683), b = to_half(1);
  const void* const in[] = {&a, &b};
  const double factors[] = {3, 1};
  Half sum;
  void* const out[] = {&sum};
  reduce_many(DType::kF16, ReduceOp::kPremulSum, in, out, 1, 1, factors);
  EXPECT_EQ(to_float(sum), 2050);
}

TEST(Reduce, UnsupportedReductionsAreExplained) {
  EXPECT_EQ(to_string(check_reduction(DType::kC64, ReduceOp::kProduct).error()),
            "InvalidArgument: the operation product is not for complex numbers (c64) (hint: they take sum, avg and "
            "premul_sum)");
  EXPECT_EQ(to_string(check_reduction(DType::kI64, ReduceOp::kPremulSum).error()),
            "InvalidArgument: the operation premul_sum is for floating and complex numbers, not for i64");
  EXPECT_FALSE(check_reduction(DType::kBool, ReduceOp::kPremulSum).ok());
  EXPECT_EQ(to_string(check_reduction(DType::kF32, ReduceOp::kBxor).error()),
            "InvalidArgument: the operation bxor is for integers and bool, not for f32");
  EXPECT_FALSE(check_reduction(DType::kBool, ReduceOp::kAvg).ok());
}

// Large outputs that are not inputs are streamed, at any alignment. Two outputs with different alignments within a line
// are not streamed.
TEST(Reduce, LargeResultsOutOfPlaceEqualThoseInPlace) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kU8})
    for (const std::size_t inputs : {2u, 3u})
      for (const std::pair<std::size_t, std::size_t> at : {std::pair(0, 0), {5, 5}, {16, 3}}) {
        const std::size_t size = size_of(dtype), count = kStreamFrom / size + 77, bytes = count * size;
        std::vector<std::vector<std::byte>> from(inputs, std::vector<std::byte>(bytes));
        for (std::size_t r = 0; r < inputs; ++r)
          for (std::size_t i = 0; i < bytes; ++i) from[r][i] = std::byte((i * 7 + r * 13) % 61);  // no NaN
        std::vector<const void*> in;
        for (const auto& vector : from) in.push_back(vector.data());
        const std::byte guard{0xee};
        std::vector<std::byte> one(bytes + 128 * size, guard), other = one;
        void* const out[] = {one.data() + at.first * size, other.data() + at.second * size};
        for (const std::size_t outputs : {1u, 2u}) {
          std::fill(one.begin(), one.end(), guard);
          reduce_many(dtype, ReduceOp::kSum, in, std::span(out).first(outputs), count, 1);
          std::vector<std::byte> wanted = from[0];
          std::vector<const void*> in_place = in;
          in_place[0] = wanted.data();
          void* const into[] = {wanted.data()};
          reduce_many(dtype, ReduceOp::kSum, in_place, into, count, 1);
          for (std::size_t k = 0; k < outputs; ++k) ASSERT_EQ(std::memcmp(out[k], wanted.data(), bytes), 0);
          ASSERT_EQ(one[at.first * size + bytes], guard);
          if (at.first > 0) {
            ASSERT_EQ(one[at.first * size - 1], guard);
          }
        }
      }
}

TEST(Copy, EveryLengthAndOffset) {
  std::vector<std::byte> from(kStreamFrom + 300), to(kStreamFrom + 400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7);
  for (std::size_t bytes :
       {std::size_t(0), std::size_t(1), std::size_t(63), std::size_t(1000), kStreamFrom, kStreamFrom + 129})
    for (std::size_t offset : {0, 1, 33}) {
      std::fill(to.begin(), to.end(), std::byte{0xee});
      copy_bytes(to.data() + offset, from.data() + offset * 2, bytes);
      ASSERT_EQ(std::memcmp(to.data() + offset, from.data() + offset * 2, bytes), 0);
      ASSERT_EQ(to[offset + bytes], std::byte{0xee});
    }
}

}  // namespace
}  // namespace tutti::comm
