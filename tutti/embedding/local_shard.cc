// Rows are numbered within the shard here. A shard of all rows takes the caller's indices as they are; one of a part of
// the rows picks those that fall into it, which is when they are checked against the table. In the other case the
// kernel checks them while it fetches ahead.
#include "tutti/embedding/local_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/embedding/memory.h"

namespace tutti {
namespace {

constexpr std::int64_t kMostRows = std::int64_t(1) << 32;  // what a RowUse can name
constexpr std::int64_t kGrain = 1024;                      // uses of rows that are worth a thread

// Where a run of uses may be cut so that no row is in two pieces: the first place from `at` on.
std::int64_t cut(std::span<const RowUse> uses, std::int64_t at) {
  const std::int64_t count = std::int64_t(uses.size());
  while (at > 0 && at < count && row_of(uses[std::size_t(at)]) == row_of(uses[std::size_t(at - 1)])) ++at;
  return std::min(at, count);
}

template <class Body>  // body(uses)
void by_rows(std::span<const RowUse> uses, const ParallelFor& parallel, const Body& body) {
  parallel(std::int64_t(uses.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t from = cut(uses, begin), to = cut(uses, end);
    if (from < to) body(uses.subspan(std::size_t(from), std::size_t(to - from)));
  });
}

}  // namespace

template <class T>
Result<LocalShard<T>> LocalShard<T>::create(const TableSpec& spec, std::size_t table, const TableShard& box,
                                            const EmbeddingOptions& options) {
  LocalShard shard;
  shard.spec_ = spec;
  shard.table_ = table;
  shard.box_ = box;
  shard.options_ = options;
  if (shard.count() > kMostRows)
    return invalid_argument(
        fmt::format("a part of table {} has {} rows; at most {} on one rank", spec.name, shard.count(), kMostRows),
        "cut the table by rows (row-wise)");
  for (const TableArray which : kTableArrays) {
    const std::int64_t numbers = shard.count() * shard.columns(which);
    if (numbers == 0) continue;
    shard.arrays_[std::size_t(which)] = TUTTI_TRY(huge_memory(std::size_t(numbers) * sizeof(T)));
    if (which == TableArray::kRowWeights) std::fill_n(shard.array(which), numbers, T(1));
    const bool accumulates = which == TableArray::kState || which == TableArray::kRowWeightState;
    if (accumulates && options.initial_accumulator != 0)
      std::fill_n(shard.array(which), numbers, T(options.initial_accumulator));
  }
  return shard;
}

template <class T>
T* LocalShard<T>::array(TableArray which) const {
  return reinterpret_cast<T*>(arrays_[std::size_t(which)].data());
}

template <class T>
std::size_t LocalShard<T>::bytes() const {
  std::size_t bytes = 0;
  for (const TableArray which : kTableArrays) bytes += std::size_t(count() * columns(which)) * sizeof(T);
  return bytes;
}

template <class T>
Error LocalShard<T>::outside(std::int64_t index, const LookupsView& lookups, std::int64_t position,
                             std::int64_t batch) const {
  const auto after = std::upper_bound(lookups.offsets.begin(), lookups.offsets.end(), position);
  return invalid_argument(
      fmt::format("index {} is outside of table {}, which has rows 0 - {}: lookup {} of sample {}{}", index, spec_.name,
                  spec_.rows - 1, position - *(after - 1), after - lookups.offsets.begin() - 1,
                  batch >= 0 ? fmt::format(" of batch {}", batch) : ""),
      "does the number of rows of the table belong to these data?");
}

template <class T>
Result<ShardLookups> LocalShard<T>::select(const LookupsView& lookups, std::int64_t batch) const {
  ShardLookups picked;
  if (box_.rows.begin == 0 && box_.rows.end == spec_.rows) {
    picked.offsets_ = lookups.offsets;
    picked.indices_ = lookups.indices;
    return picked;
  }
  picked.own_offsets_.reserve(lookups.offsets.size());
  picked.own_offsets_.push_back(0);
  for (std::int64_t s = 0; s < lookups.samples(); ++s) {
    for (std::int64_t k = lookups.offsets[std::size_t(s)]; k < lookups.offsets[std::size_t(s) + 1]; ++k) {
      const std::int64_t index = lookups.indices[std::size_t(k)];
      if (std::uint64_t(index) >= std::uint64_t(spec_.rows)) return outside(index, lookups, k, batch);
      if (index >= box_.rows.begin && index < box_.rows.end) picked.own_indices_.push_back(index - box_.rows.begin);
    }
    picked.own_offsets_.push_back(std::int64_t(picked.own_indices_.size()));
  }
  picked.offsets_ = picked.own_offsets_;
  picked.indices_ = picked.own_indices_;
  return picked;
}

template <class T>
Status LocalShard<T>::pool(const ShardLookups& lookups, Slice samples, T* out, std::int64_t stride,
                           std::int64_t batch) const {
  if (samples.size() <= 0) return {};
  const std::int64_t bad = tutti::pool(Bags<T>{.rows = array(TableArray::kRows),
                                               .weights = array(TableArray::kRowWeights),
                                               .count = count(),
                                               .width = width(),
                                               .offsets = lookups.offsets_.data(),
                                               .indices = lookups.indices_.data(),
                                               .begin = samples.begin,
                                               .end = samples.end,
                                               .out = out,
                                               .stride = stride});
  if (bad >= 0) return outside(lookups.indices_[std::size_t(bad)], {lookups.offsets_, lookups.indices_}, bad, batch);
  return {};
}

template <class T>
void LocalShard<T>::sort(const ShardLookups& lookups) {
  uses_.resize(lookups.indices_.size());
  for (std::int64_t s = 0; s < lookups.samples(); ++s)
    for (std::int64_t k = lookups.offsets_[std::size_t(s)]; k < lookups.offsets_[std::size_t(s) + 1]; ++k)
      uses_[std::size_t(k)] = row_use(std::uint32_t(lookups.indices_[std::size_t(k)]), std::uint32_t(s));
  sort_by_row(uses_, scratch_, count());
}

template <class T>
RowStep<T> LocalShard<T>::a_step(std::span<const RowUse> uses, const T* const* gradients, double lr) {
  return {.rows = array(TableArray::kRows),
          .state = array(TableArray::kState),
          .weights = array(TableArray::kRowWeights),
          .learned = options_.row_weights == RowWeights::kLearned,
          .weight_state = array(TableArray::kRowWeightState),
          .width = width(),
          .dim = spec_.dim,
          .uses = uses,
          .gradients = gradients,
          .rule = options_.rule,
          .lr = lr,
          .eps = options_.eps,
          .scale = options_.gradient_scale};
}

template <class T>
void LocalShard<T>::step(const T* const* gradients, double lr, const ParallelFor& parallel) {
  by_rows(uses_, parallel, [&](std::span<const RowUse> uses) { step_rows(a_step(uses, gradients, lr)); });
}

template <class T>
void LocalShard<T>::sum_columns(const T* const* gradients, T* sums) {
  RowStep<T> step = a_step(uses_, gradients, 0);
  step.sums_of_columns = sums;
  step_rows(step);
}

template <class T>
void LocalShard<T>::step(const T* const* gradients, const T* sums, double lr) {
  RowStep<T> step = a_step(uses_, gradients, lr);
  step.sums_of_rows = sums;
  step_rows(step);
}

template <class T>
void LocalShard<T>::add_gradients(const ShardLookups& lookups, Slice samples, const T* const* of_sample,
                                  T* gradients) const {
  const std::int64_t width = this->width();
  for (std::int64_t s = samples.begin; s < samples.end; ++s)
    for (std::int64_t k = lookups.offsets_[std::size_t(s)]; k < lookups.offsets_[std::size_t(s) + 1]; ++k) {
      T* const to = gradients + lookups.indices_[std::size_t(k)] * width;
      const T* const from = of_sample[s - samples.begin];
      for (std::int64_t i = 0; i < width; ++i) to[i] += from[i];
    }
}

template <class T>
void LocalShard<T>::step_all(const T* gradients, double lr, const ParallelFor& parallel) {
  std::vector<RowUse> uses;
  std::vector<const T*> of_row(std::size_t(this->count()));
  for (std::int64_t row = 0; row < count(); ++row) {
    const T* const gradient = gradients + row * width();
    of_row[std::size_t(row)] = gradient;
    if (std::any_of(gradient, gradient + width(), [](T value) { return value != 0; }))
      uses.push_back(row_use(std::uint32_t(row), std::uint32_t(row)));
  }
  by_rows(uses, parallel, [&](std::span<const RowUse> some) { step_rows(a_step(some, of_row.data(), lr)); });
}

template <class T>
void LocalShard<T>::read(TableArray which, std::int64_t first, std::int64_t count, T* out, std::int64_t stride) const {
  const std::int64_t columns = this->columns(which);
  const T* const from = array(which) + first * columns;
  for (std::int64_t k = 0; k < count; ++k) std::copy_n(from + k * columns, columns, out + k * stride);
}

template <class T>
void LocalShard<T>::write(TableArray which, std::int64_t first, std::int64_t count, const T* in, std::int64_t stride) {
  const std::int64_t columns = this->columns(which);
  T* const to = array(which) + first * columns;
  for (std::int64_t k = 0; k < count; ++k) std::copy_n(in + k * stride, columns, to + k * columns);
}

template class LocalShard<float>;
template class LocalShard<double>;

}  // namespace tutti
