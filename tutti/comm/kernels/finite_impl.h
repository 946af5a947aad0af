// The loops behind finite.h, compiled once per instruction set: each reduce_<isa>.cc defines TUTTI_ISA and includes
// this file. Not for other includes.
//
// Without the sign bit, floating point numbers are ordered like their bits as integers, and infinity and NaN are above
// all finite numbers. So the largest integer of a block decides, which costs one "and" and one maximum per element. The
// loop ends at the first block with such a value.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

template <class Word>
bool all_below(const void* data, std::size_t count, Word infinity) {
  constexpr std::size_t kBlock = 4096;
  constexpr Word kMagnitude = std::numeric_limits<Word>::max();
  const auto* const words = static_cast<const Word*>(data);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    Word greatest = 0;
    for (std::size_t i = begin; i < end; ++i) greatest = std::max(greatest, Word(words[i] & kMagnitude));
    if (greatest >= infinity) return false;
  }
  return true;
}

}  // namespace

bool all_finite(DType dtype, const void* data, std::size_t count) {
  switch (dtype) {
    case DType::kF16:
      return all_below<std::int16_t>(data, count, 0x7c00);
    case DType::kBF16:
      return all_below<std::int16_t>(data, count, 0x7f80);
    case DType::kF32:
      return all_below<std::int32_t>(data, count, 0x7f800000);
    case DType::kF64:
      return all_below<std::int64_t>(data, count, 0x7ff0000000000000);
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kC64:  // finite.cc has split them into twice as many real numbers
    case DType::kC128:
      return true;
  }
  return true;
}

}  // namespace tutti::kernels::TUTTI_ISA
