// The loops are written for the compiler's vectorizer: a dot product is kept in sixteen partial sums that are added in
// a fixed order at the end, so the bits do not depend on threads; the innermost loops run over the columns of a vector.
#include "tutti/models/dlrm/interaction.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/sanitizers.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !TUTTI_ASAN && !TUTTI_TSAN
#define TUTTI_CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define TUTTI_CLONES
#endif

namespace tutti::dlrm {
namespace {

constexpr std::size_t kLanes = 16;

template <class T>
inline __attribute__((always_inline)) T dot(const T* a, const T* b, std::size_t dim) {
  T lanes[kLanes] = {};
  std::size_t column = 0;
  for (; column + kLanes <= dim; column += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[column + lane] * b[column + lane];
  }
  for (std::size_t lane = 0; column < dim; ++column, ++lane) lanes[lane] += a[column] * b[column];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
inline __attribute__((always_inline)) void forward(const DotShape& shape, std::span<const Rows<const T>> vectors,
                                                   Rows<T> out, std::size_t begin, std::size_t end) {
  for (std::size_t sample = begin; sample < end; ++sample) {
    const auto row = [&](std::size_t i) { return vectors[i].data + sample * vectors[i].stride; };
    T* to = out.data + sample * out.stride;
    std::copy_n(row(0), shape.dim, to);
    to += shape.dim;
    for (std::size_t i = 0; i < shape.vectors; ++i) {
      const T* mine = row(i);
      for (std::size_t j = 0; j < i + (shape.itself ? 1 : 0); ++j) *to++ = dot(mine, row(j), shape.dim);
    }
  }
}

template <class T>
inline __attribute__((always_inline)) void backward(const DotShape& shape, std::span<const Rows<const T>> vectors,
                                                    Rows<const T> out_gradient, std::span<const Rows<T>> gradients,
                                                    std::size_t begin, std::size_t end) {
  for (std::size_t sample = begin; sample < end; ++sample) {
    const T* from = out_gradient.data + sample * out_gradient.stride;
    std::copy_n(from, shape.dim, gradients[0].data + sample * gradients[0].stride);
    const T* products = from + shape.dim;
    for (std::size_t i = 0; i < shape.vectors; ++i) {
      const T* mine = vectors[i].data + sample * vectors[i].stride;
      T* to = gradients[i].data + sample * gradients[i].stride;
      if (i > 0) std::fill_n(to, shape.dim, T(0));
      for (std::size_t j = 0; j < i; ++j) {
        const T slope = *products++;
        const T* other = vectors[j].data + sample * vectors[j].stride;
        T* other_to = gradients[j].data + sample * gradients[j].stride;
        for (std::size_t column = 0; column < shape.dim; ++column) {
          to[column] += slope * other[column];
          other_to[column] += slope * mine[column];
        }
      }
      if (!shape.itself) continue;
      const T slope = 2 * *products++;
      for (std::size_t column = 0; column < shape.dim; ++column) to[column] += slope * mine[column];
    }
  }
}

}  // namespace

template <>
TUTTI_CLONES void dot_interaction(const DotShape& shape, std::span<const Rows<const float>> vectors, Rows<float> out,
                                  std::size_t begin, std::size_t end) {
  forward<float>(shape, vectors, out, begin, end);
}
template <>
TUTTI_CLONES void dot_interaction(const DotShape& shape, std::span<const Rows<const double>> vectors, Rows<double> out,
                                  std::size_t begin, std::size_t end) {
  forward<double>(shape, vectors, out, begin, end);
}
template <>
TUTTI_CLONES void dot_interaction_backward(const DotShape& shape, std::span<const Rows<const float>> vectors,
                                           Rows<const float> out_gradient, std::span<const Rows<float>> gradients,
                                           std::size_t begin, std::size_t end) {
  backward<float>(shape, vectors, out_gradient, gradients, begin, end);
}
template <>
TUTTI_CLONES void dot_interaction_backward(const DotShape& shape, std::span<const Rows<const double>> vectors,
                                           Rows<const double> out_gradient, std::span<const Rows<double>> gradients,
                                           std::size_t begin, std::size_t end) {
  backward<double>(shape, vectors, out_gradient, gradients, begin, end);
}

}  // namespace tutti::dlrm
