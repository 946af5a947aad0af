// Chooses, once, the loops for the widest instruction set that this CPU has.
#include "tutti/parallel/tensor/kernels/exponential.h"

#include <type_traits>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/parallel/tensor/kernels/exponential_isa.h"

namespace tutti {
namespace {

const kernels::AllExponentialLoops& of_this_cpu() {
#define TUTTI_EXPONENTIAL_LOOPS(isa) kernels::isa::kExponentialLoops
  static const kernels::AllExponentialLoops& chosen = TUTTI_FOR_THIS_CPU(TUTTI_EXPONENTIAL_LOOPS);
  return chosen;
#undef TUTTI_EXPONENTIAL_LOOPS
}

template <class T>
const kernels::ExponentialLoops<T>& loops() {
  if constexpr (std::is_same_v<T, float>)
    return of_this_cpu().f32;
  else
    return of_this_cpu().f64;
}

}  // namespace

template <class T>
T largest_of(const T* x, std::size_t count) {
  return loops<T>().largest_of(x, count);
}
template <class T>
T exponentials(T* x, std::size_t count, T shift) {
  return loops<T>().exponentials(x, count, shift);
}
template <class T>
void softmax_gradient(const T* p, T* g, std::size_t count, T product) {
  loops<T>().softmax_gradient(p, g, count, product);
}
template <class T>
void gelu_values(const T* x, T* y, std::size_t count) {
  loops<T>().gelu_values(x, y, count);
}
template <class T>
void gelu_gradient(const T* x, const T* of_y, T* of_x, std::size_t count) {
  loops<T>().gelu_gradient(x, of_y, of_x, count);
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

}  // namespace tutti
