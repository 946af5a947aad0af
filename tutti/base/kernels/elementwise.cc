// Chooses, once, the loops for the widest instruction set that this CPU has.
#include "tutti/base/kernels/elementwise.h"

#include <type_traits>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/base/kernels/elementwise_isa.h"

namespace tutti {
namespace {

const kernels::AllElementwiseLoops& elementwise_of_this_cpu() {
#define TUTTI_ELEMENTWISE_LOOPS(isa) kernels::isa::kElementwiseLoops
  static const kernels::AllElementwiseLoops& chosen = TUTTI_FOR_THIS_CPU(TUTTI_ELEMENTWISE_LOOPS);
  return chosen;
#undef TUTTI_ELEMENTWISE_LOOPS
}

template <class T>
const kernels::ElementwiseLoops<T>& elementwise_loops() {
  if constexpr (std::is_same_v<T, float>)
    return elementwise_of_this_cpu().f32;
  else
    return elementwise_of_this_cpu().f64;
}

}  // namespace

template <class T>
T largest_of(const T* x, std::size_t count) {
  return elementwise_loops<T>().largest_of(x, count);
}
template <class T>
T exponentials(T* x, std::size_t count, T shift) {
  return elementwise_loops<T>().exponentials(x, count, shift);
}
template <class T>
void softmax_gradient(const T* p, T* g, std::size_t count, T product) {
  elementwise_loops<T>().softmax_gradient(p, g, count, product);
}
template <class T>
void gelu_values(const T* x, T* y, std::size_t count) {
  elementwise_loops<T>().gelu_values(x, y, count);
}
template <class T>
void gelu_gradient(const T* x, const T* of_y, T* of_x, std::size_t count) {
  elementwise_loops<T>().gelu_gradient(x, of_y, of_x, count);
}
template <class T>
void fill_mask(const MaskRow& row, T scale, T* mask, std::size_t count) {
  elementwise_loops<T>().fill_mask(row, scale, mask, count);
}
template <class T>
void multiply_by_mask(const MaskRow& row, T scale, T* x, std::size_t count) {
  elementwise_loops<T>().multiply_by_mask(row, scale, x, count);
}

template float largest_of(const float*, std::size_t);
template double largest_of(const double*, std::size_t);
template float exponentials(float*, std::size_t, float);
template double exponentials(double*, std::size_t, double);
template void softmax_gradient(const float*, float*, std::size_t, float);
template void softmax_gradient(const double*, double*, std::size_t, double);
template void gelu_values(const float*, float*, std::size_t);
template void gelu_values(const double*, double*, std::size_t);
template void gelu_gradient(const float*, const float*, float*, std::size_t);
template void gelu_gradient(const double*, const double*, double*, std::size_t);
template void fill_mask(const MaskRow&, float, float*, std::size_t);
template void fill_mask(const MaskRow&, double, double*, std::size_t);
template void multiply_by_mask(const MaskRow&, float, float*, std::size_t);
template void multiply_by_mask(const MaskRow&, double, double*, std::size_t);

}  // namespace tutti
