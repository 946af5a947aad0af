#pragma once
// What elementwise.cc asks of the loops of one instruction set (elementwise_impl.h).
#include "tutti/base/kernels/elementwise.h"

namespace tutti::kernels {

template <class T>
struct ElementwiseLoops {
  decltype(&tutti::largest_of<T>) largest_of;
  decltype(&tutti::exponentials<T>) exponentials;
  decltype(&tutti::softmax_gradient<T>) softmax_gradient;
  decltype(&tutti::gelu_values<T>) gelu_values;
  decltype(&tutti::gelu_gradient<T>) gelu_gradient;
  decltype(&tutti::fill_mask<T>) fill_mask;
  decltype(&tutti::multiply_by_mask<T>) multiply_by_mask;
};

struct AllElementwiseLoops {
  ElementwiseLoops<float> f32;
  ElementwiseLoops<double> f64;
};

namespace generic {
extern const AllElementwiseLoops kElementwiseLoops;
}
namespace avx2 {
extern const AllElementwiseLoops kElementwiseLoops;
}
namespace avx512 {
extern const AllElementwiseLoops kElementwiseLoops;
}

}  // namespace tutti::kernels
