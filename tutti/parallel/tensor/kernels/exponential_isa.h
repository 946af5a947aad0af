#pragma once
// What exponential.cc asks of the loops of one instruction set (exponential_impl.h).
#include "tutti/parallel/tensor/kernels/exponential.h"

namespace tutti::kernels {

template <class T>
struct ExponentialLoops {
  decltype(&tutti::largest_of<T>) largest_of;
  decltype(&tutti::exponentials<T>) exponentials;
  decltype(&tutti::softmax_gradient<T>) softmax_gradient;
  decltype(&tutti::gelu_values<T>) gelu_values;
  decltype(&tutti::gelu_gradient<T>) gelu_gradient;
};

struct AllExponentialLoops {
  ExponentialLoops<float> f32;
  ExponentialLoops<double> f64;
};

namespace generic {
extern const AllExponentialLoops kExponentialLoops;
}
namespace avx2 {
extern const AllExponentialLoops kExponentialLoops;
}
namespace avx512 {
extern const AllExponentialLoops kExponentialLoops;
}

}  // namespace tutti::kernels
