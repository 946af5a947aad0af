#pragma once
// The arithmetic of embedding tables: pooled sums of rows, and the step of the rows that were looked up. T is float or
// double. The loops are compiled for several instruction sets and chosen by the CPU; all give the same bits.
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/embedding/options.h"

namespace tutti {

// Pooled sums of the samples [begin, end) of one table: out[s - begin] = sum of weight * row over the sample's indices,
// in their order.
template <class T>
struct Bags {
  const T* rows = nullptr;  // [count, width]
  // Where rows[k] lies, by position k in `indices` relative to offsets[begin], in place of `rows`: for rows that are
  // not in one piece.
  const T* const* located = nullptr;
  const T* weights = nullptr;  // by row; null: 1
  std::int64_t count = 0, width = 0;
  const std::int64_t* offsets = nullptr;  // as in LookupsView
  const std::int64_t* indices = nullptr;
  std::int64_t begin = 0, end = 0;
  T* out = nullptr;
  std::int64_t stride = 0;  // of `out`, in numbers
};
// -1, or the position in `indices` of one that is not in [0, count); then `out` is undefined.
template <class T>
std::int64_t pool(const Bags<T>& bags);

// A row and a sample that looked it up: row << 32 | sample, so that they can be sorted as one number.
using RowUse = std::uint64_t;
constexpr RowUse row_use(std::uint32_t row, std::uint32_t sample) { return RowUse(row) << 32 | sample; }
constexpr std::uint32_t row_of(RowUse use) { return std::uint32_t(use >> 32); }
constexpr std::uint32_t sample_of(RowUse use) { return std::uint32_t(use); }

// Sorts by row; uses of one row keep their order. `scratch` is made as large as `uses`.
void sort_by_row(std::vector<RowUse>& uses, std::vector<RowUse>& scratch, std::int64_t rows);

// A step of the rows that are named in a run of sorted uses: the gradient of a row is the sum, in their order, of the
// gradients of the samples that used it, times its weight.
template <class T>
struct RowStep {
  T* rows = nullptr;  // [count, width]
  // Where the k-th different row of `uses` lies, in place of `rows`; with kAdagrad its accumulators follow it there.
  std::span<T* const> located;
  T* state = nullptr;         // accumulators: kAdagrad: [count, width]; kRowWiseAdagrad: [count]; kSgd: null
  T* weights = nullptr;       // by row; null: 1
  bool learned = false;       // the weights are trained
  T* weight_state = nullptr;  // by row; null with kSgd
  std::int64_t width = 0;
  std::int64_t dim = 0;  // of the table, of which `width` columns are here
  std::span<const RowUse> uses;
  const T* const* gradients = nullptr;  // by sample: of its pooled sum, `width` numbers
  TableRule rule = TableRule::kSgd;
  double lr = 0, eps = 0, scale = 1;
  // For tables that are cut by columns, two numbers for each different row of `uses`: the sum of squares of its
  // gradient, and the gradient of its weight.
  T* sums_of_columns = nullptr;     // not null: they are written here, and nothing is changed
  const T* sums_of_rows = nullptr;  // not null: those of all columns, taken from here
};
template <class T>
void step_rows(const RowStep<T>& step);

// The number of different rows.
std::int64_t count_rows(std::span<const RowUse> uses);

}  // namespace tutti
