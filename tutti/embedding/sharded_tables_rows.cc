// Rows into and out of the parts, by their numbers in the whole table.
#include <fmt/format.h>

#include <algorithm>

#include "tutti/comm/collectives.h"
#include "tutti/embedding/batch.h"

namespace tutti {

template <class T>
bool ShardedTables<T>::has_row(std::size_t table, std::int64_t row) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const LocalShard<T>& shard) {
    return shard.table() == table && row >= shard.box().rows.begin && row < shard.box().rows.end;
  });
}

template <class T>
Status ShardedTables<T>::check_range(std::size_t table, TableArray array, std::int64_t first,
                                     std::int64_t count) const {
  if (table >= tables_.size()) return invalid_argument(fmt::format("table {} of {}", table, tables_.size()));
  if (first < 0 || count < 0 || first > tables_[table].rows - count)
    return invalid_argument(fmt::format("rows {} - {} of table {}, which has {}", first, first + count,
                                        tables_[table].name, tables_[table].rows));
  if (columns_of(array, tables_[table].dim, options_) == 0)
    return invalid_argument(fmt::format("table {} has no {} with these options", tables_[table].name, name(array)));
  return {};
}

// Calls what(shard, first row in the shard, rows, where they begin in rows of the whole width) for each shard of mine.
template <class T>
template <class What>
void ShardedTables<T>::on_shards(std::size_t table, TableArray array, std::int64_t first, std::int64_t count,
                                 const What& what) const {
  const std::int64_t dim = tables_[table].dim, columns = columns_of(array, dim, options_);
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (shards_[k].table() != table) continue;
    const TableShard& box = shards_[k].box();
    const std::int64_t begin = std::max(first, box.rows.begin), end = std::min(first + count, box.rows.end);
    if (begin < end)
      what(k, begin - box.rows.begin, end - begin,
           (begin - first) * columns + (columns == dim ? box.columns.begin : 0));
  }
}

template <class T>
Status ShardedTables<T>::write(std::size_t table, TableArray array, std::int64_t first, std::int64_t count,
                               const T* rows) {
  TUTTI_TRY(check_range(table, array, first, count));
  const std::int64_t stride = columns_of(array, tables_[table].dim, options_);
  on_shards(table, array, first, count, [&](std::size_t k, std::int64_t from, std::int64_t some, std::int64_t at) {
    shards_[k].write(array, from, some, rows + at, stride);
  });
  return {};
}

template <class T>
Status ShardedTables<T>::read(std::size_t table, TableArray array, std::int64_t first, std::int64_t count,
                              T* rows) const {
  TUTTI_TRY(fail(check_range(table, array, first, count)));
  const std::int64_t dim = tables_[table].dim, stride = columns_of(array, dim, options_);
  std::fill_n(rows, count * stride, T(0));
  on_shards(table, array, first, count, [&](std::size_t k, std::int64_t from, std::int64_t some, std::int64_t at) {
    const bool is_copy = (stride != dim && shards_[k].box().columns.begin > 0) || (part_of_[k] == kNoPart && rank_ > 0);
    if (!is_copy) shards_[k].read(array, from, some, rows + at, stride);
  });
  if (placement_.ranks == 1) return {};
  // Every number comes from one rank, and zeros from the others.
  return group_.run(requests::all_reduce(std::span<T>(rows, std::size_t(count * stride)), ReduceOp::kSum));
}

template Status ShardedTables<float>::check_range(std::size_t, TableArray, std::int64_t, std::int64_t) const;
template bool ShardedTables<float>::has_row(std::size_t, std::int64_t) const;
template Status ShardedTables<float>::write(std::size_t, TableArray, std::int64_t, std::int64_t, const float*);
template Status ShardedTables<float>::read(std::size_t, TableArray, std::int64_t, std::int64_t, float*) const;
template Status ShardedTables<double>::check_range(std::size_t, TableArray, std::int64_t, std::int64_t) const;
template bool ShardedTables<double>::has_row(std::size_t, std::int64_t) const;
template Status ShardedTables<double>::write(std::size_t, TableArray, std::int64_t, std::int64_t, const double*);
template Status ShardedTables<double>::read(std::size_t, TableArray, std::int64_t, std::int64_t, double*) const;

}  // namespace tutti
