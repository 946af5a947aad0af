// NaN and infinity are found at every position, and no other value is taken for one.
#include "tutti/comm/kernels/finite.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::comm {
namespace {

struct Look {
  const char* name;
  bool (*run)(DType, const void*, std::size_t);
};

// The selected loop, and those of all instruction sets of this CPU, which do not support complex numbers.
std::vector<Look> looks(bool complex) {
  std::vector<Look> all = {{"chosen", all_finite}};
  if (complex) return all;
  all.push_back({"generic", kernels::generic::all_finite});
#ifdef __x86_64__
  if (cpu_has(Isa::kAvx2)) all.push_back({"avx2", kernels::avx2::all_finite});
  if (cpu_has(Isa::kAvx512)) all.push_back({"avx512", kernels::avx512::all_finite});
#endif
  return all;
}

// `bad`: bit patterns of non-finite values. `largest`: the bits of the largest finite number.
template <class Word>
void look(DType dtype, const std::vector<Word>& bad, Word largest, std::size_t words_each = 1) {
  for (const auto& way : looks(words_each > 1)) {
    for (const std::size_t count : {1, 2, 1001, 4096, 4097, 10'000}) {
      std::vector<Word> words(count * words_each, largest);
      const auto finite = [&] { return way.run(dtype, words.data(), count); };
      EXPECT_TRUE(finite()) << way.name << " " << name(dtype) << " " << count;
      for (const std::size_t place : {std::size_t(0), words.size() / 2, words.size() - 1}) {
        for (const Word value : bad) {
          words[place] = value;
          EXPECT_FALSE(finite()) << way.name << " " << name(dtype) << ", place " << place << " of " << words.size()
                                 << ": " << value;
          words[place] = largest;
        }
      }
    }
  }
}

TEST(AllFinite, ChecksEveryElement) {
  look<std::uint16_t>(DType::kF16, {0x7c00, 0xfc00, 0x7e00, 0x7c01}, 0xfbff);
  look<std::uint16_t>(DType::kBF16, {0x7f80, 0xff80, 0x7fc0, 0x7f81}, 0xff7f);
  const std::vector<std::uint32_t> bad = {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001};
  look<std::uint32_t>(DType::kF32, bad, 0xff7fffff);
  look<std::uint32_t>(DType::kC64, bad, 0xff7fffff, 2);
  const std::vector<std::uint64_t> bad_double = {0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000};
  look<std::uint64_t>(DType::kF64, bad_double, 0xffefffffffffffff);
  look<std::uint64_t>(DType::kC128, bad_double, 0xffefffffffffffff, 2);
}

TEST(AllFinite, IntegersAreAlwaysFinite) {
  for (const auto dtype : {DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kBool}) {
    const std::vector<std::uint64_t> words(10, std::numeric_limits<std::uint64_t>::max());
    EXPECT_TRUE(all_finite(dtype, words.data(), 10)) << name(dtype);
  }
}

}  // namespace
}  // namespace tutti::comm
