#pragma once
// Embedding tables of which each rank keeps a part. Lookups are pooled on the rank that has the rows, and pooled rows
// are sent to the rank that has the samples. Backward sends the gradients back, where they update the rows at once. No
// gradient of a table ever exists.
//
//   ShardedEmbeddings tables(specs, place_by_count(specs, world.size()), world, {.lr = 0.1});
//   auto pending = tables.post(samples, lookups);          // pools my tables for the whole batch, sends
//   at::Tensor x = bottom(dense);                          // meanwhile
//   std::vector<at::Tensor> rows = tables.wait(pending);   // by table: [my samples, dim]
//   loss(x, rows).backward();                              // the rows have been updated when this returns
//
// my_slice(n, rank, size) divides the samples of a batch of n among ranks. The loss of a rank should be the sum over
// its samples divided by the global n: gradients are summed over ranks, and then one process and many agree.
//
// Every rank calls post(), wait() and backward() in the same order, also a rank without tables or without samples.
// Several exchanges may be in flight. Backward sends the gradients where wait() was called and waits for them where
// post() was called, so that what was done between the two overlaps in backward, too. A batch that was posted while
// gradients are off (at::NoGradGuard) updates nothing. Run one backward() for each batch; do not keep the graph. There
// is no second derivative. Failure: any error, here or on a peer, throws an Exception; rows may be updated in part.
//
// Threads: one at a time, and backward() on the CPU's autograd thread of the same caller. Give this object a separate
// group (Group::split), so that DataParallel's calls cannot come in between.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/embedding/lookups.h"
#include "tutti/embedding/options.h"
#include "tutti/embedding/table_array.h"
#include "tutti/planning/tables/placement.h"

namespace at {
class Tensor;
}

namespace tutti {

class ShardedEmbeddings {
 public:
  // An exchange in flight. Copies share it.
  class Pending {
   public:
    Pending() = default;

   private:
    friend class ShardedEmbeddings;
    struct State;
    std::shared_ptr<State> state_;
  };

  // `group` without ranks (Group{}): one process. Every rank gives the same; rows are zero at first. Collective.
  ShardedEmbeddings(std::vector<TableSpec> tables, TablePlacement placement, const Group& group = {},
                    EmbeddingOptions options = {});
  ~ShardedEmbeddings();
  ShardedEmbeddings(const ShardedEmbeddings&) = delete;

  const std::vector<TableSpec>& tables() const;
  const TablePlacement& placement() const;
  const EmbeddingOptions& options() const;
  std::vector<std::size_t> my_tables() const;  // of which this rank has a part, ascending
  Slice my_samples(std::int64_t samples) const { return my_slice(samples, rank_, ranks_); }

  // `lookups`: by table, of the whole batch of `samples`; those of tables that are not in my_tables() are not read and
  // may be empty. They must stay until backward() is over, or with gradients off until wait(). An index outside its
  // table throws an Exception that names row, table and `batch` (the caller's number of it).
  Pending post(std::int64_t samples, std::span<const LookupsView> lookups, std::int64_t batch = -1);
  // By table: [my samples, dim], part of the autograd graph if gradients were on at post(). Once for each batch.
  std::vector<at::Tensor> wait(const Pending& pending);

  void set_lr(double lr);  // for the updates of later backward() calls
  double lr() const;

  // The columns of what is kept of a table (table_array.h): dim, 1, or 0 where these options keep no such thing.
  std::int64_t columns(std::size_t table, TableArray array) const;
  // Rows from `first` on, [n, columns] of any floating type on the CPU. This rank keeps the rows of its parts and
  // ignores the rest. Give every rank the same rows, and the number of ranks does not matter.
  void write_rows(std::size_t table, std::int64_t first, const at::Tensor& rows, TableArray array = TableArray::kRows);
  // Likewise from a function of (row, out): `out` has dim numbers. Called for rows that this rank has a part of only.
  void fill(std::size_t table, const std::function<void(std::int64_t row, std::span<double> out)>& values);
  // Rows first .. first + count, from the ranks that have them: [count, columns], of options().dtype. Collective.
  at::Tensor read_rows(std::size_t table, std::int64_t first, std::int64_t count,
                       TableArray array = TableArray::kRows) const;
  // What this rank keeps itself, for checkpoints: the table and the box of each part, and rows of a part, counted from
  // its first: [count, columns of the part].
  std::vector<std::pair<std::size_t, TableShard>> my_shards() const;
  at::Tensor read_shard(std::size_t shard, TableArray array, std::int64_t first, std::int64_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace tutti
