#pragma once
// The dot interaction and its gradient, sample by sample: the products of all pairs of vectors go straight into the row
// that the top MLP reads, where dlrm_s_pytorch.py joins the vectors, multiplies each sample's matrix by its transpose,
// picks the triangle by index and joins again. Pure arithmetic on memory; any number of threads on different samples.
#include <cstddef>
#include <span>

namespace tutti::dlrm {

// Rows of `dim` values: sample s at data + s * stride.
template <class T>
struct Rows {
  T* data = nullptr;
  std::size_t stride = 0;
};

struct DotShape {
  std::size_t vectors = 0, dim = 0;
  bool itself = false;

  std::size_t width() const { return dim + (itself ? vectors * (vectors + 1) : vectors * (vectors - 1)) / 2; }
};

// out row s = [v_0 | v_1.v_0, v_2.v_0, v_2.v_1, ...] (with `itself`: v_0.v_0, v_1.v_0, v_1.v_1, ...), for samples
// [begin, end). T: float or double.
template <class T>
void dot_interaction(const DotShape& shape, std::span<const Rows<const T>> vectors, Rows<T> out, std::size_t begin,
                     std::size_t end);
// The gradients of the vectors (written, not added to) from that of `out`.
template <class T>
void dot_interaction_backward(const DotShape& shape, std::span<const Rows<const T>> vectors, Rows<const T> out_gradient,
                              std::span<const Rows<T>> gradients, std::size_t begin, std::size_t end);

}  // namespace tutti::dlrm
