#include "tutti/comm/kernels/widen.h"

#include "tutti/base/float16.h"

namespace tutti::comm {
namespace {

template <class From, class To, class Convert>
void convert(const void* from, void* to, std::size_t count, Convert one) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  for (std::size_t i = 0; i < count; ++i) target[i] = one(source[i]);
}

}  // namespace

void widen(DType dtype, const void* from, float* to, std::size_t count) {
  if (dtype == DType::kF16)
    convert<Half, float>(from, to, count, [](Half value) { return to_float(value); });
  else
    convert<BFloat16, float>(from, to, count, [](BFloat16 value) { return to_float(value); });
}

void narrow(DType dtype, const float* from, void* to, std::size_t count) {
  if (dtype == DType::kF16)
    convert<float, Half>(from, to, count, [](float value) { return to_half(value); });
  else
    convert<float, BFloat16>(from, to, count, [](float value) { return to_bfloat16(value); });
}

}  // namespace tutti::comm
