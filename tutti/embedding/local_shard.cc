// Rows are numbered within the shard here. A shard of all rows takes the caller's indices as they are; one of a part of
// the rows picks those that fall into it, which is when they are checked against the table. In the other case the
// kernel checks them while it fetches ahead.
//
// Rows in a file are located before they are used: all that a batch looks up at once, and then, for the step, each
// different one. What the rules keep by row, one number, is in memory in any case.
#include "tutti/embedding/local_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/embedding/table_memory.h"


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
    if (numbers == 0 || shard.in_file(which)) continue;
    shard.arrays_[std::size_t(which)] = TUTTI_TRY(table_memory(std::size_t(numbers) * sizeof(T)));
    if (which == TableArray::kRowWeights) std::fill_n(shard.array(which), numbers, T(1));
    const bool accumulates = which == TableArray::kState || which == TableArray::kRowWeightState;
    if (accumulates && options.initial_accumulator != 0)
      std::fill_n(shard.array(which), numbers, T(options.initial_accumulator));
  }
  if (!shard.in_file(TableArray::kRows)) return shard;
  const std::int64_t state = shard.in_file(TableArray::kState) ? shard.columns(TableArray::kState) : 0;
  shard.mapped_ =
      TUTTI_TRY(MappedRows<T>::create(options.folder, shard.count(), shard.width() + state, options.cached_bytes));
  if (state > 0 && options.initial_accumulator != 0)
    for (std::int64_t row = 0; row < shard.count(); ++row)
      std::fill_n(shard.row_of_array(TableArray::kState, row, true), state, T(options.initial_accumulator));
  return shard;
}

template <class T>
T* LocalShard<T>::array(TableArray which) const {
  return reinterpret_cast<T*>(arrays_[std::size_t(which)].data());
}

template <class T>
bool LocalShard<T>::in_file(TableArray which) const {
  return !options_.folder.empty() &&
         (which == TableArray::kRows || (which == TableArray::kState && options_.rule == TableRule::kAdagrad));
}

// Where a row of an array is, for the moment.
template <class T>
T* LocalShard<T>::row_of_array(TableArray which, std::int64_t row, bool change) const {
  if (!in_file(which)) return array(which) + row * columns(which);
  return mapped_->find(row, change) + (which == TableArray::kState ? width() : 0);
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
Result<ShardLookups> LocalShard<T>::select(const LookupsView& lookups, std::int64_t batch) {
  ShardLookups picked;
  if (box_.rows.begin == 0 && box_.rows.end == spec_.rows) {
    picked.offsets_ = lookups.offsets;
    picked.indices_ = lookups.indices;
  } else {
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
  }
  if (mapped_) TUTTI_TRY(locate(picked, lookups, batch));
  return picked;
}

template <class T>
Status LocalShard<T>::locate(ShardLookups& picked, const LookupsView& lookups, std::int64_t batch) {
  wanted_.clear();
  for (std::size_t k = 0; k < picked.indices_.size(); ++k) {
    const std::int64_t index = picked.indices_[k];
    if (std::uint64_t(index) >= std::uint64_t(count())) return outside(index, lookups, std::int64_t(k), batch);
    wanted_.push_back(std::uint32_t(index));
  }
  located_.resize(wanted_.size());
  mapped_->locate(wanted_, located_.data(), false);
  return {};
}

template <class T>
Status LocalShard<T>::pool(const ShardLookups& lookups, Slice samples, T* out, std::int64_t stride,
                           std::int64_t batch) const {
  if (samples.size() <= 0) return {};
  Bags<T> bags{.rows = array(TableArray::kRows),
               .weights = array(TableArray::kRowWeights),
               .count = count(),
               .width = width(),
               .offsets = lookups.offsets_.data(),
               .indices = lookups.indices_.data(),
               .begin = samples.begin,
               .end = samples.end,
               .out = out,
               .stride = stride};
  if (mapped_) bags.located = located_.data() + lookups.offsets_[std::size_t(samples.begin)];
  const std::int64_t bad = tutti::pool(bags);
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
RowStep<T> LocalShard<T>::a_step(std::span<const RowUse> uses, const T* const* gradients, double lr) const {
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
void LocalShard<T>::locate_different(std::span<const RowUse> uses) {
  if (!mapped_) return;
  wanted_.clear();
  for (const RowUse use : uses)
    if (wanted_.empty() || wanted_.back() != row_of(use)) wanted_.push_back(row_of(use));
  located_.resize(wanted_.size());
  mapped_->locate(wanted_, located_.data(), true);
}

template <class T>
void LocalShard<T>::step_uses(std::span<const RowUse> uses, const T* const* gradients, double lr,
                              const ParallelFor& parallel) {
  locate_different(uses);
  parallel(std::int64_t(uses.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t from = std::size_t(cut(uses, begin)), to = std::size_t(cut(uses, end));
    if (from >= to) return;
    RowStep<T> step = a_step(uses.subspan(from, to - from), gradients, lr);
    if (mapped_) step.located = std::span<T* const>(located_).subspan(std::size_t(count_rows(uses.first(from))));
    step_rows(step);
  });
}

template <class T>
void LocalShard<T>::step(const T* const* gradients, double lr, const ParallelFor& parallel) {
  step_uses(uses_, gradients, lr, parallel);
}

template <class T>
void LocalShard<T>::sum_columns(const T* const* gradients, T* sums) {
  locate_different(uses_);
  RowStep<T> step = a_step(uses_, gradients, 0);
  if (mapped_) step.located = located_;
  step.sums_of_columns = sums;
  step_rows(step);
}

template <class T>
void LocalShard<T>::step(const T* const* gradients, const T* sums, double lr) {
  locate_different(uses_);
  RowStep<T> step = a_step(uses_, gradients, lr);
  if (mapped_) step.located = located_;
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
  step_uses(uses, of_row.data(), lr, parallel);
}

template <class T>
void LocalShard<T>::read(TableArray which, std::int64_t first, std::int64_t count, T* out, std::int64_t stride) const {
  for (std::int64_t k = 0; k < count; ++k)
    std::copy_n(row_of_array(which, first + k, false), columns(which), out + k * stride);
}

template <class T>
void LocalShard<T>::write(TableArray which, std::int64_t first, std::int64_t count, const T* in, std::int64_t stride) {
  for (std::int64_t k = 0; k < count; ++k)
    std::copy_n(in + k * stride, columns(which), row_of_array(which, first + k, true));
}

template class LocalShard<float>;
template class LocalShard<double>;

}  // namespace tutti
