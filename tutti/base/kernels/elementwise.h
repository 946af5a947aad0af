#pragma once
// Element-wise loops of softmax, cross entropy, GELU and dropout: f32 and f64, each computed in its own type. The loops
// of the widest instructions that this CPU has are chosen at the start; all give the same bits. exp() is within 2 units
// in the last place; below -87 (f32) or -708 (f64) it is 0, above 80 or 700 it grows no more. No alignment is needed,
// ranges do not overlap unless they are the same, and a NaN stays one.
#include <cstddef>
#include <cstdint>

namespace tutti {

// The greatest of `count` numbers, without NaNs; minus infinity for none.
template <class T>
T largest_of(const T* x, std::size_t count);

// x_i becomes exp(x_i - shift); returns their sum.
template <class T>
T exponentials(T* x, std::size_t count, T shift);

// Backward of a softmax: g_i becomes p_i (g_i - product), where product = sum p g.
template <class T>
void softmax_gradient(const T* p, T* g, std::size_t count, T product);

// y = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): GELU by tanh (Hendrycks and Gimpel 2016, section 4).
template <class T>
void gelu_values(const T* x, T* y, std::size_t count);
// of_x_i = of_y_i dy/dx (x_i); of_x may be of_y.
template <class T>
void gelu_gradient(const T* x, const T* of_y, T* of_x, std::size_t count);

// Which elements of a row a dropout drops: those whose hash, a number in [0, 2^32), is below `below`. Two rounds of a
// 32-bit hash ("lowbias32" of Wellons, 2018, public domain), keyed by the row.
struct MaskRow {
  std::uint64_t key = 0;
  std::uint32_t first = 0;  // number of the first element
  std::uint32_t below = 0;
};
// The elements that stay become `scale`, the others 0.
template <class T>
void fill_mask(const MaskRow& row, T scale, T* mask, std::size_t count);
// x_i times its element of the mask.
template <class T>
void multiply_by_mask(const MaskRow& row, T scale, T* x, std::size_t count);

}  // namespace tutti
