#pragma once
// The part of one table that this rank keeps: rows, what the rule keeps for them, the weights of rows; and what is done
// with it for a batch.
//
// Threads: pool() any, at the same time; everything else one at a time. With a folder (EmbeddingOptions) what select()
// returned is good for pool() until the next select() or step().
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/embedding/bags.h"
#include "tutti/embedding/lookups.h"
#include "tutti/embedding/mapped_rows.h"
#include "tutti/embedding/options.h"
#include "tutti/embedding/parallel.h"
#include "tutti/embedding/table_array.h"
#include "tutti/planning/tables/placement.h"

namespace tutti {

// The lookups of a batch that fall on a shard, by rows of the shard.
class ShardLookups {
 public:
  ShardLookups() = default;
  ShardLookups(ShardLookups&&) = default;  // moving a vector leaves its elements where they are
  ShardLookups& operator=(ShardLookups&&) = default;

  std::int64_t samples() const { return std::int64_t(offsets_.size()) - 1; }
  std::span<const std::int64_t> offsets() const { return offsets_; }
  std::span<const std::int64_t> indices() const { return indices_; }

 private:
  template <class T>
  friend class LocalShard;
  std::span<const std::int64_t> offsets_, indices_;      // the caller's, or
  std::vector<std::int64_t> own_offsets_, own_indices_;  // those of a part of the rows
};

template <class T>
class LocalShard {
 public:
  static Result<LocalShard> create(const TableSpec& spec, std::size_t table, const TableShard& box,
                                   const EmbeddingOptions& options);

  std::size_t table() const { return table_; }
  const TableShard& box() const { return box_; }
  std::int64_t width() const { return box_.columns.size(); }
  std::int64_t count() const { return box_.rows.size(); }
  const T* memory(TableArray which) const { return array(which); }  // [count(), columns]; null if in a file

  // Picks the lookups of this shard. kInvalidArgument names row, table and batch of an index outside of the table, if
  // indices are read here; else pool() rejects it. `lookups` must stay.
  Result<ShardLookups> select(const LookupsView& lookups, std::int64_t batch);
  // out[s - samples.begin] = the pooled sum of sample s, `stride` numbers apart.
  Status pool(const ShardLookups& lookups, Slice samples, T* out, std::int64_t stride, std::int64_t batch) const;

  // Updates the rows that were looked up, in two calls: sort() keeps which sample used which row until the next sort().
  // `gradients`: by sample, width() numbers each.
  void sort(const ShardLookups& lookups);
  void step(const T* const* gradients, double lr, const ParallelFor& parallel);
  // For tables that are cut by columns step() is two: two numbers for each different row, of this shard, and then the
  // rows, with those numbers of all shards.
  std::int64_t different_rows() const { return count_rows(uses_); }
  void sum_columns(const T* const* gradients, T* sums);
  void step(const T* const* gradients, const T* sums, double lr);
  // Of a replicated table: `gradients` has all of its rows. Those that are zero were not looked up.
  void step_all(const T* gradients, double lr, const ParallelFor& parallel);
  // gradients[row] += those of the samples that looked it up.
  void add_gradients(const ShardLookups& lookups, Slice samples, const T* const* of_sample, T* gradients) const;

  // Rows [first, first + count) of the shard (not the table) of an array that there is; row k is at out + k * stride.
  void read(TableArray array, std::int64_t first, std::int64_t count, T* out, std::int64_t stride) const;
  void write(TableArray array, std::int64_t first, std::int64_t count, const T* in, std::int64_t stride);

 private:
  LocalShard() = default;
  T* array(TableArray which) const;
  std::int64_t columns(TableArray which) const { return columns_of(which, width(), options_); }
  bool in_file(TableArray which) const;
  T* row_of_array(TableArray which, std::int64_t row, bool change) const;
  Status locate(ShardLookups& picked, const LookupsView& lookups, std::int64_t batch);
  void locate_different(std::span<const RowUse> uses);
  RowStep<T> a_step(std::span<const RowUse> uses, const T* const* gradients, double lr) const;
  void step_uses(std::span<const RowUse> uses, const T* const* gradients, double lr, const ParallelFor& parallel);
  Error outside(std::int64_t index, const LookupsView& lookups, std::int64_t position, std::int64_t batch) const;

  TableSpec spec_;
  std::size_t table_ = 0;
  TableShard box_;
  EmbeddingOptions options_;
  Mapping arrays_[4];                   // by TableArray
  std::vector<RowUse> uses_, scratch_;  // kept, since fresh memory costs more than sorting
  // Rows in a file, with what kAdagrad keeps behind each; mutable: to find a row is to use the cache.
  mutable std::optional<MappedRows<T>> mapped_;
  std::vector<std::uint32_t> wanted_;
  std::vector<T*> located_;  // by lookup of select(), or by different row of a step
};

}  // namespace tutti
