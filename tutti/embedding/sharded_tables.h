#pragma once
// Embedding tables of which each rank keeps a part, without LibTorch: parallel/sharded_embeddings.h is this
// with tensors and autograd, and says what it is for. T is float or double.
//
// A batch goes through four calls, each made by every rank, in the same order:
//   post()             pools the rows of my parts for all samples, and sends them to the ranks that have the samples
//   wait()             until the rows of my samples have arrived
//   send_gradients()   sends the gradients of my samples' rows to the owners
//   apply_gradients()  waits for the gradients of my parts, and updates the rows
// Several batches may be in flight. The last two calls may be skipped, and then nothing is updated. A repeated call, or
// one out of order, is rejected.
//
// On one host rows and gradients are written to, or read from, the memory of the other ranks, and a batch costs three
// barriers. Between hosts the verbs of the group send them. A batch's memory stays until the batch and all holders of
// memory_of() are gone.
//
// Threads: one at a time. Failure: a Status; an error of this rank fails the group, so that the other ranks fail at
// once. The destructor waits at a barrier (for at most 10 s) if gradients were sent since the last one, because peers
// may still read them here.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/thread.h"
#include "tutti/comm/group.h"
#include "tutti/embedding/layout.h"
#include "tutti/embedding/local_shard.h"
#include "tutti/embedding/lookups.h"
#include "tutti/embedding/options.h"
#include "tutti/embedding/parallel.h"

namespace tutti {

// Of the pooled rows of a table: [my samples, dim], rows `stride` numbers apart. Without data: zero.
template <class T>
struct RowGradients {
  const T* data = nullptr;
  std::int64_t stride = 0;
};

template <class T>
class ShardedTables {
 public:
  struct Batch;
  using BatchPtr = std::shared_ptr<Batch>;

  // `group` without ranks: one process. Collective; every rank gives the same, which is compared.
  static Result<std::unique_ptr<ShardedTables>> create(std::vector<TableSpec> tables, TablePlacement placement,
                                                       const Group& group, const EmbeddingOptions& options,
                                                       ParallelFor parallel = serial_for);
  ~ShardedTables();
  ShardedTables(const ShardedTables&) = delete;

  // See ShardedEmbeddings::post().
  Result<BatchPtr> post(std::int64_t samples, std::span<const LookupsView> lookups, std::int64_t number = -1);
  Status wait(const BatchPtr& batch);
  // After wait(): [my samples, dim] of a table, contiguous. The memory is good for as long as memory_of() is held.
  std::span<T> rows_of(const BatchPtr& batch, std::size_t table) const;
  std::shared_ptr<void> memory_of(const BatchPtr& batch) const;
  // By table. The gradients are copied, or with one rank used, before this returns.
  Status send_gradients(const BatchPtr& batch, std::span<const RowGradients<T>> gradients);
  Status apply_gradients(const BatchPtr& batch);

  const std::vector<TableSpec>& tables() const { return tables_; }
  const TablePlacement& placement() const { return placement_; }
  const EmbeddingOptions& options() const { return options_; }
  void set_lr(double lr) { options_.lr = lr; }
  int rank() const { return rank_; }
  Slice my_samples(std::int64_t samples) const { return my_slice(samples, rank_, placement_.ranks); }

  // The parts of this rank, by table.
  const std::vector<LocalShard<T>>& shards() const { return shards_; }
  // Rows [first, first + count) of the table, all columns of the array: this rank keeps what falls on its shards.
  // columns_of(array, dim, options()) numbers a row.
  Status write(std::size_t table, TableArray array, std::int64_t first, std::int64_t count, const T* rows);
  // The same from all ranks; collective.
  Status read(std::size_t table, TableArray array, std::int64_t first, std::int64_t count, T* rows) const;
  // Whether this rank has a part of row `row`.
  bool has_row(std::size_t table, std::int64_t row) const;

 private:
  struct Memory;  // the buffers of one batch, used again by later ones
  ShardedTables(std::vector<TableSpec> tables, TablePlacement placement, const Group& group, EmbeddingOptions options,
                ParallelFor parallel);
  Status same_everywhere() const;
  Status fail(Status status) const;
  // sharded_tables.cc
  Status advance(Batch& batch, int stage, const char* call) const;
  Status check_lookups(std::int64_t samples, std::span<const LookupsView> lookups, std::int64_t number) const;
  Result<std::shared_ptr<Memory>> memory_for(std::int64_t samples);
  Status pool(Batch& batch);
  Status pool_replicated(Batch& batch);
  void assemble(Batch& batch);
  void copy_gradients(Batch& batch, std::span<const RowGradients<T>> gradients);
  Status start_replicated(Batch& batch, std::span<const RowGradients<T>> gradients);
  std::vector<const T*> gradients_of(const Batch& batch, const ExchangePart& part) const;
  void sort(Batch& batch);
  Status step(Batch& batch);
  bool sums_over_columns(std::size_t table) const;
  Status step_column_wise(Batch& batch);
  // sharded_tables_exchange.cc
  Status start_rows(Batch& batch);
  Works exchange(Batch& batch, bool back);
  void encode_owner(Batch& batch, bool to_wire);
  void encode_reader(Batch& batch, T* area, bool to_wire);
  // sharded_tables_rows.cc
  Status check_range(std::size_t table, TableArray array, std::int64_t first, std::int64_t count) const;
  template <class What>
  void on_shards(std::size_t table, TableArray array, std::int64_t first, std::int64_t count, const What& what) const;

  std::vector<TableSpec> tables_;
  TablePlacement placement_;
  Group group_;
  EmbeddingOptions options_;
  ParallelFor parallel_;
  int rank_ = 0;
  bool shows_gradients_ = false;  // peers may be reading some here
  Unwinding unwinding_{};
  ExchangeLayout layout_, wire_layout_;
  std::vector<LocalShard<T>> shards_;    // by table
  std::vector<std::size_t> part_of_;     // by shard: its place in the layout's parts; replicated: none (-1)
  std::vector<std::int64_t> assembled_;  // by table: numbers of a sample before it in that area; -1: not there
  std::int64_t assembled_width_ = 0;
  std::vector<T> zeros_;                         // a row of the widest table
  std::vector<std::shared_ptr<Memory>> memory_;  // of batches under way and gone
};

}  // namespace tutti
