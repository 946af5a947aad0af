#include "tests/fakes/cuda/nccl_math.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "tutti/base/float16.h"

namespace fake_nccl {
namespace {

// Calls act with a value of the type in which elements are computed, one in which they are stored, and how to convert.
template <class Act>
void with_type(ncclDataType_t type, const Act& act) {
  const auto same = [](auto value) { return value; };
  switch (type) {
    case ncclInt8:
      return act(std::int8_t(), std::int8_t(), same, same);
    case ncclUint8:
      return act(std::uint8_t(), std::uint8_t(), same, same);
    case ncclInt32:
      return act(std::int32_t(), std::int32_t(), same, same);
    case ncclInt64:
      return act(std::int64_t(), std::int64_t(), same, same);
    case ncclFloat32:
      return act(float(), float(), same, same);
    case ncclFloat64:
      return act(double(), double(), same, same);
    case ncclFloat16:
      return act(
          float(), tutti::Half(), [](tutti::Half h) { return tutti::to_float(h); },
          [](float f) { return tutti::to_half(f); });
    case ncclBfloat16:
      return act(
          float(), tutti::BFloat16(), [](tutti::BFloat16 h) { return tutti::to_float(h); },
          [](float f) { return tutti::to_bfloat16(f); });
    default:
      std::abort();
  }
}

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return T(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return T(a + b);
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t size = 0;
  with_type(type, [&](auto, auto stored, auto, auto) { size = sizeof stored; });
  return size;
}

void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& from, void* out, std::size_t count) {
  with_type(type, [&](auto computed, auto stored, auto load, auto store) {
    using Stored = decltype(stored);
    for (std::size_t i = 0; i < count; ++i) {
      auto all = computed = load(static_cast<const Stored*>(from[0])[i]);
      for (std::size_t r = 1; r < from.size(); ++r)
        all = combine(op, all, decltype(computed)(load(static_cast<const Stored*>(from[r])[i])));
      if (op == ncclAvg) all = decltype(computed)(all / decltype(computed)(from.size()));
      static_cast<Stored*>(out)[i] = store(all);
    }
  });
}

void multiply(ncclDataType_t type, const void* factor, void* data, std::size_t count) {
  with_type(type, [&](auto computed, auto stored, auto load, auto store) {
    using Stored = decltype(stored);
    std::memcpy(&stored, factor, sizeof stored);
    computed = load(stored);
    for (std::size_t i = 0; i < count; ++i) {
      auto& element = static_cast<Stored*>(data)[i];
      element = store(decltype(computed)(load(element) * computed));
    }
  });
}

}  // namespace fake_nccl
