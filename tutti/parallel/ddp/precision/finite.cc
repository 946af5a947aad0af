// A number is not finite when all bits of its exponent are set. The comparison of a block is or-ed into one word, which
// compilers turn into vector instructions; it stops at the first block that holds one.
#include "tutti/parallel/ddp/precision/finite.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

constexpr std::size_t kBlock = 4096;

template <class Word>
bool none_has(const void* data, std::size_t count, Word exponent) {
  const auto* words = static_cast<const Word*>(data);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    Word found = 0;
    for (std::size_t i = begin; i < end; ++i) found |= Word((words[i] & exponent) == exponent);
    if (found) return false;
  }
  return true;
}

}  // namespace

bool all_finite(DType dtype, const void* data, std::size_t count) {
  switch (dtype) {
    case DType::kF16:
      return none_has<std::uint16_t>(data, count, 0x7c00);
    case DType::kBF16:
      return none_has<std::uint16_t>(data, count, 0x7f80);
    case DType::kC64:
      count *= 2;
      [[fallthrough]];
    case DType::kF32:
      return none_has<std::uint32_t>(data, count, 0x7f800000u);
    case DType::kC128:
      count *= 2;
      [[fallthrough]];
    case DType::kF64:
      return none_has<std::uint64_t>(data, count, 0x7ff0000000000000u);
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
      return true;
  }
  return true;
}

void NonFiniteWatch::note(const Group& group, std::size_t parameter) {
  mine_ = std::min(mine_, std::int64_t(parameter) * (group.size() + 1) + group.rank());
}

void NonFiniteWatch::note_on_the_way(const Group& group, std::size_t parameter) {
  mine_ = std::min(mine_, std::int64_t(parameter) * (group.size() + 1) + group.size());
}

std::optional<NonFiniteWatch::Found> NonFiniteWatch::agree(const Group& group) const {
  const auto lowest = all_reduce(group, mine_, ReduceOp::kMin);
  if (lowest == kNothing) return {};
  const auto rank = int(lowest % (group.size() + 1));
  return Found{std::size_t(lowest / (group.size() + 1)), rank == group.size() ? Found::kOnTheWay : rank};
}

}  // namespace tutti
