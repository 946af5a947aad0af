// The memory of a batch on a rank, as a reader, is one block that it shows its peers:
//
//   [ pooled rows, by part | tables that had to be assembled | gradients, by part ]
//
// post() shows it, which is the first barrier: every rank makes its calls in one order, so nothing of an earlier batch
// in this block is still read or written. Owners pool straight into the first area of each reader. The second barrier,
// started after that and completed in wait(), means that the rows have arrived. send_gradients() fills the third area.
// After the third barrier owners may read it, and do so while they update their rows. If memory is out of reach, the
// verbs receive into the first area and send from the third, and the owner has a private buffer.
#include "tutti/embedding/sharded_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "tutti/base/mutex.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/embedding/batch.h"
#include "tutti/embedding/table_memory.h"
#include "tutti/embedding/wire.h"

namespace tutti {
namespace {

constexpr std::int64_t kSampleGrain = 64;
constexpr std::int64_t kMostSamples = std::int64_t(1) << 32;  // what a RowUse can name
constexpr auto kGoodbye = std::chrono::seconds(10);

std::int64_t one_unit_a_number(std::int64_t width) { return width; }

}  // namespace

template <class T>
ShardedTables<T>::ShardedTables(std::vector<TableSpec> tables, TablePlacement placement, const Group& group,
                                EmbeddingOptions options, ParallelFor parallel)
    : tables_(std::move(tables)),
      placement_(std::move(placement)),
      group_(group),
      options_(std::move(options)),
      parallel_(std::move(parallel)),
      rank_(group ? group.rank() : 0),
      layout_(placement_, one_unit_a_number),
      wire_layout_(placement_, wire_of<T>(options_.wire).row_units),
      assembled_(tables_.size(), -1) {
  std::int64_t widest = 0;
  for (const TableSpec& table : tables_) widest = std::max(widest, table.dim);
  zeros_.resize(std::size_t(widest));
}

template <class T>
Result<std::unique_ptr<ShardedTables<T>>> ShardedTables<T>::create(std::vector<TableSpec> tables,
                                                                   TablePlacement placement, const Group& group,
                                                                   const EmbeddingOptions& options,
                                                                   ParallelFor parallel) {
  const int ranks = group ? group.size() : 1;
  if (placement.ranks != ranks)
    return invalid_argument(fmt::format("the tables are placed on {} ranks, the group has {}", placement.ranks, ranks));
  TUTTI_TRY(check(placement, tables));
  std::unique_ptr<ShardedTables> made(
      new ShardedTables(std::move(tables), std::move(placement), group, options, std::move(parallel)));
  TUTTI_TRY(made->same_everywhere());
  double mine = 0;  // numbers of this rank, which share the cache
  for (std::size_t t = 0; t < made->tables_.size(); ++t)
    for (const TableShard& box : made->placement_.tables[t].shards)
      if (box.rank == made->rank_) mine += double(box.rows.size()) * double(box.columns.size());
  for (std::size_t t = 0; t < made->tables_.size(); ++t) {
    const TablePlacement::Table& placed = made->placement_.tables[t];
    if (placed.sharding == TableSharding::kColumnWise || placed.sharding == TableSharding::kReplicated) {
      made->assembled_[t] = made->assembled_width_;
      made->assembled_width_ += made->tables_[t].dim;
    }
    for (const TableShard& box : placed.shards) {
      if (box.rank != made->rank_) continue;
      EmbeddingOptions own = options;
      own.cached_bytes =
          std::size_t(double(options.cached_bytes) * double(box.rows.size()) * double(box.columns.size()) / mine);
      made->shards_.push_back(TUTTI_TRY(LocalShard<T>::create(made->tables_[t], t, box, own)));
      const auto& parts = made->layout_.parts();
      const auto part = std::find_if(parts.begin(), parts.end(), [&](const ExchangePart& one) {
        return one.owner == made->rank_ && one.table == t && one.shard == box;
      });
      made->part_of_.push_back(part == parts.end() ? kNoPart : std::size_t(part - parts.begin()));
    }
  }
  return made;
}

template <class T>
ShardedTables<T>::~ShardedTables() {
  if (!shows_gradients_ || unwinding_.is_past()) return;
  const Status ignored = group_.run({.kind = Kind::kBarrier, .limit = kGoodbye});  // a peer that is lost reads nothing
}

template <class T>
Status ShardedTables<T>::fail(Status status) const {
  if (!status.ok() && group_ && group_.size() > 1 && group_.status().ok()) group_.abort(status.error());
  return status;
}

template <class T>
Status ShardedTables<T>::same_everywhere() const {
  constexpr const char* kRules[] = {"sgd", "adagrad", "row-wise adagrad"};
  constexpr const char* kExchanges[] = {"alltoall", "scatter", "scatter_list"};
  constexpr const char* kWires[] = {"exact", "bf16", "i8"};
  constexpr const char* kRowWeights[] = {"none", "fixed", "learned"};
  std::vector<NamedValue> values = {{"dtype", name(options_.dtype)},
                                    {"rule", kRules[int(options_.rule)]},
                                    {"exchange", kExchanges[int(options_.exchange)]},
                                    {"wire", kWires[int(options_.wire)]},
                                    {"row_weights", kRowWeights[int(options_.row_weights)]},
                                    {"gradient_scale", fmt::format("{}", options_.gradient_scale)},
                                    {"share_memory", fmt::format("{}", options_.share_memory)}};
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    std::string text = fmt::format("{}, {} rows of {}, placed", tables_[t].name, tables_[t].rows, tables_[t].dim);
    for (const TableShard& box : placement_.tables[t].shards)
      text += fmt::format(" on rank {} rows {}-{} columns {}-{}", box.rank, box.rows.begin, box.rows.end,
                          box.columns.begin, box.columns.end);
    values.push_back({fmt::format("table {}", t), std::move(text)});
  }
  return agree_on(group_, "the ranks were given different embedding tables, placements or options", values,
                  "give every rank the same");
}

// A batch goes through its stages once, in their order.
template <class T>
Status ShardedTables<T>::advance(Batch& batch, int stage, const char* call) const {
  constexpr const char* kDone[] = {"post()", "wait()", "send_gradients()", "apply_gradients()"};
  if (int(batch.stage) != stage - 1)
    return invalid_argument(fmt::format("{} for a batch whose last call was {}", call, kDone[int(batch.stage)]),
                            "each once, in this order: post, wait, and in backward, send_gradients, apply_gradients; "
                            "a graph that is kept cannot go through tables twice");
  batch.stage = typename Batch::Stage(stage);
  return {};
}

template <class T>
Status ShardedTables<T>::check_lookups(std::int64_t samples, std::span<const LookupsView> lookups,
                                       std::int64_t number) const {
  const auto wrong = [&](std::size_t table, std::string what) {
    return invalid_argument(fmt::format("the lookups of table {}{} {}", tables_[table].name,
                                        number >= 0 ? fmt::format(" in batch {}", number) : "", what));
  };
  if (samples < 0 || samples >= kMostSamples)
    return invalid_argument(fmt::format("a batch of {} samples; expected 0 - {}", samples, kMostSamples - 1));
  if (lookups.size() != tables_.size())
    return invalid_argument(fmt::format("lookups of {} tables, of {} that there are", lookups.size(), tables_.size()),
                            "an entry for each table; those of tables that are not in my_tables() may be empty");
  for (const LocalShard<T>& shard : shards_) {
    const std::size_t t = shard.table();
    const LookupsView& view = lookups[t];
    if (view.offsets.empty() || view.samples() != samples)
      return wrong(
          t, fmt::format("have {} offsets, expected {} for {} samples", view.offsets.size(), samples + 1, samples));
    if (view.offsets.front() != 0 || view.offsets.back() != std::int64_t(view.indices.size()))
      return wrong(t, fmt::format("have offsets {} - {}, expected 0 - {}, the number of their indices",
                                  view.offsets.front(), view.offsets.back(), view.indices.size()));
    const auto falls = std::is_sorted_until(view.offsets.begin(), view.offsets.end());
    if (falls != view.offsets.end())
      return wrong(t, fmt::format("have an offset that is smaller than the one before it, of sample {}",
                                  falls - view.offsets.begin()));
  }
  return {};
}

template <class T>
Result<std::shared_ptr<typename ShardedTables<T>::Memory>> ShardedTables<T>::memory_for(std::int64_t samples) {
  const std::int64_t most = my_slice(samples, 0, placement_.ranks).size();
  const std::size_t numbers = std::size_t(most * (2 * layout_.units() + assembled_width_));
  for (const auto& memory : memory_)
    if (memory.use_count() == 1 && memory->numbers >= numbers) {
      std::atomic_thread_fence(std::memory_order_acquire);  // the last tensor may have gone on another thread
      return memory;
    }
  auto memory = std::make_shared<Memory>();
  memory->numbers = numbers;
  if (group_ && group_.size() > 1) {
    auto shown = group_.allocate(std::max<std::size_t>(numbers, 1) * sizeof(T));
    if (shown.ok()) memory->block = *std::move(shown);  // else the heap is full: then collectives send the rows
  }
  if (!memory->block) {
    auto own = std::make_shared<Mapping>(TUTTI_TRY(table_memory(std::max<std::size_t>(numbers, 1) * sizeof(T))));
    memory->block = std::shared_ptr<std::byte>(own, own->data());
  }
  return memory;
}

template <class T>
Result<typename ShardedTables<T>::BatchPtr> ShardedTables<T>::post(std::int64_t samples,
                                                                   std::span<const LookupsView> lookups,
                                                                   std::int64_t number) {
  auto batch = std::make_shared<Batch>();
  batch->samples = samples;
  batch->number = number;
  batch->mine = my_samples(samples);
  TUTTI_TRY(fail(check_lookups(samples, lookups, number)));
  for (LocalShard<T>& shard : shards_) {
    auto picked = shard.select(lookups[shard.table()], number);
    TUTTI_TRY(fail(picked.status()));
    batch->lookups.push_back(*std::move(picked));
  }
  auto memory = memory_for(samples);
  TUTTI_TRY(fail(memory.status()));
  batch->memory = *std::move(memory);
  batch->lay_out(layout_.units(), assembled_width_, placement_.ranks);
  if (placement_.ranks > 1 && options_.share_memory) {
    const std::span<std::byte> shown(batch->memory->block.get(), std::size_t(batch->numbers) * sizeof(T));
    const auto areas = TUTTI_TRY(peer_memory(group_, std::span(&shown, 1)));
    shows_gradients_ = false;  // that was a barrier, if memory is in reach; if not, nothing was shown before either
    for (std::byte* area : areas) batch->areas.push_back(reinterpret_cast<T*>(area));
    batch->shared = areas[0] != nullptr;
  }
  std::erase_if(memory_,
                [&](const auto& old) { return old.use_count() == 1 && old->numbers < batch->memory->numbers; });
  if (std::find(memory_.begin(), memory_.end(), batch->memory) == memory_.end()) memory_.push_back(batch->memory);
  TUTTI_TRY(fail(pool(*batch)));
  TUTTI_TRY(fail(start_rows(*batch)));
  TUTTI_TRY(fail(pool_replicated(*batch)));
  return batch;
}

template <class T>
Status ShardedTables<T>::pool(Batch& batch) {
  if (placement_.ranks > 1 && !batch.shared)
    batch.memory->owner.resize(std::size_t(batch.samples * layout_.units_of(rank_)));
  struct {
    Mutex mutex;
    Status first TUTTI_GUARDED_BY(mutex);
  } failure;
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (part_of_[k] == kNoPart) continue;
    const ExchangePart& part = layout_.parts()[part_of_[k]];
    for (int reader = 0; reader < placement_.ranks; ++reader) {
      const Slice theirs = my_slice(batch.samples, reader, placement_.ranks);
      T* const out = placement_.ranks == 1 ? batch.rows() + layout_.in_reader(part, theirs)
                     : batch.shared        ? batch.areas[std::size_t(reader)] + layout_.in_reader(part, theirs)
                                           : batch.memory->owner.data() +
                                          layout_.in_owner(part, theirs, batch.samples, options_.exchange);
      parallel_(theirs.size(), kSampleGrain, [&](std::int64_t begin, std::int64_t end) {
        const Slice some{theirs.begin + begin, theirs.begin + end};
        Status status = shards_[k].pool(batch.lookups[k], some, out + begin * part.width, part.width, batch.number);
        if (status.ok()) return;
        const MutexLock lock(failure.mutex);
        if (failure.first.ok()) failure.first = std::move(status);
      });
    }
  }
  const MutexLock lock(failure.mutex);
  return std::move(failure.first);
}

template <class T>
Status ShardedTables<T>::wait(const BatchPtr& batch) {
  TUTTI_TRY(fail(advance(*batch, 1, "wait()")));
  TUTTI_TRY(batch->rows_work.wait());
  batch->rows_work = {};
  if (placement_.ranks > 1 && !batch->shared && options_.wire != WireFormat::kExact)
    encode_reader(*batch, batch->rows(), false);
  assemble(*batch);
  return {};
}

// Adds up what was cut by rows, in the order of the parts, and puts together what was cut by columns.
template <class T>
void ShardedTables<T>::assemble(Batch& batch) {
  const std::int64_t mine = batch.mine.size();
  for (std::size_t p = 0; p < layout_.parts().size(); ++p) {
    const ExchangePart& part = layout_.parts()[p];
    const T* const from = batch.rows() + layout_.in_reader(part, batch.mine);
    if (part.lead != p) {
      T* const sum = batch.rows() + layout_.in_reader(layout_.parts()[part.lead], batch.mine);
      for (std::int64_t i = 0; i < mine * part.width; ++i) sum[i] += from[i];
    } else if (assembled_[part.table] >= 0) {
      const std::int64_t dim = tables_[part.table].dim;
      T* const to = batch.assembled() + mine * assembled_[part.table] + part.shard.columns.begin;
      for (std::int64_t s = 0; s < mine; ++s) std::copy_n(from + s * part.width, part.width, to + s * dim);
    }
  }
}

template <class T>
std::span<T> ShardedTables<T>::rows_of(const BatchPtr& batch, std::size_t table) const {
  const std::size_t numbers = std::size_t(batch->mine.size() * tables_[table].dim);
  if (assembled_[table] >= 0) return {batch->assembled() + batch->mine.size() * assembled_[table], numbers};
  for (const ExchangePart& part : layout_.parts())
    if (part.table == table) {
      const ExchangePart& lead = layout_.parts()[part.lead];
      return {batch->rows() + layout_.in_reader(lead, batch->mine), numbers};
    }
  return {};
}

template <class T>
std::shared_ptr<void> ShardedTables<T>::memory_of(const BatchPtr& batch) const {
  return batch->memory;
}

template <class T>
Status ShardedTables<T>::pool_replicated(Batch& batch) {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (part_of_[k] != kNoPart) continue;
    const LocalShard<T>& shard = shards_[k];
    T* const out = batch.assembled() + batch.mine.size() * assembled_[shard.table()];
    TUTTI_TRY(shard.pool(batch.lookups[k], batch.mine, out, shard.width(), batch.number));
  }
  return {};
}

template <class T>
void ShardedTables<T>::copy_gradients(Batch& batch, std::span<const RowGradients<T>> gradients) {
  for (std::size_t p = 0; p < layout_.parts().size(); ++p) {
    const ExchangePart& part = layout_.parts()[p];
    if (batch.shared && part.lead != p) continue;  // one copy is seen by all
    const RowGradients<T>& from = gradients[part.table];
    T* const to = batch.gradients() + layout_.in_reader(part, batch.mine);
    if (!from.data) {
      std::fill_n(to, batch.mine.size() * part.width, T(0));
      continue;
    }
    for (std::int64_t s = 0; s < batch.mine.size(); ++s)
      std::copy_n(from.data + s * from.stride + part.shard.columns.begin, part.width, to + s * part.width);
  }
}

template <class T>
Status ShardedTables<T>::start_replicated(Batch& batch, std::span<const RowGradients<T>> gradients) {
  std::vector<Request> requests;
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (part_of_[k] != kNoPart) continue;
    const LocalShard<T>& shard = shards_[k];
    const std::size_t numbers = std::size_t(shard.count() * shard.width());
    auto& dense = batch.memory->dense[shard.table()];
    if (!dense && group_) dense = TUTTI_TRY(group_.allocate(numbers * sizeof(T)));
    if (!dense)
      dense = std::shared_ptr<std::byte>(new std::byte[numbers * sizeof(T)], std::default_delete<std::byte[]>());
    T* const sum = reinterpret_cast<T*>(dense.get());
    std::fill_n(sum, numbers, T(0));
    const RowGradients<T>& from = gradients[shard.table()];
    if (from.data) {
      std::vector<const T*> of_sample;
      for (std::int64_t s = 0; s < batch.mine.size(); ++s) of_sample.push_back(from.data + s * from.stride);
      shard.add_gradients(batch.lookups[k], batch.mine, of_sample.data(), sum);
    }
    if (placement_.ranks > 1) requests.push_back(requests::all_reduce(std::span<T>(sum, numbers), ReduceOp::kSum));
  }
  if (!requests.empty()) batch.dense_work = group_.submit(requests);
  return {};
}

template <class T>
Status ShardedTables<T>::send_gradients(const BatchPtr& batch, std::span<const RowGradients<T>> gradients) {
  TUTTI_TRY(fail(advance(*batch, 2, "send_gradients()")));
  if (gradients.size() != tables_.size())
    return fail(invalid_argument(
        fmt::format("gradients of {} tables, of {} that there are", gradients.size(), tables_.size())));
  if (placement_.ranks == 1) {
    batch->own_gradients = gradients;
    TUTTI_TRY(start_replicated(*batch, gradients));
    sort(*batch);
    TUTTI_TRY(step(*batch));
    batch->own_gradients = {};
    return {};
  }
  copy_gradients(*batch, gradients);
  if (batch->shared) {
    batch->gradients_work = Works({group_.submit({.kind = Kind::kBarrier})});
    shows_gradients_ = true;
  } else {
    if (options_.wire != WireFormat::kExact) encode_reader(*batch, batch->gradients(), true);
    batch->gradients_work = exchange(*batch, true);
  }
  return fail(start_replicated(*batch, gradients));
}

template <class T>
Status ShardedTables<T>::apply_gradients(const BatchPtr& batch) {
  TUTTI_TRY(fail(advance(*batch, 3, "apply_gradients()")));
  if (placement_.ranks == 1) return {};  // done when they came
  sort(*batch);                          // while the gradients of other ranks are in flight
  TUTTI_TRY(batch->gradients_work.wait());
  batch->gradients_work = {};
  if (!batch->shared && options_.wire != WireFormat::kExact) encode_owner(*batch, false);
  TUTTI_TRY(batch->dense_work.wait());
  batch->dense_work = {};
  return step(*batch);
}

// Where the gradient of each sample for a part is.
template <class T>
std::vector<const T*> ShardedTables<T>::gradients_of(const Batch& batch, const ExchangePart& part) const {
  std::vector<const T*> of_sample;
  of_sample.reserve(std::size_t(batch.samples));
  if (placement_.ranks == 1) {
    const RowGradients<T>& own = batch.own_gradients[part.table];
    for (std::int64_t s = 0; s < batch.samples; ++s)
      of_sample.push_back(own.data ? own.data + s * own.stride + part.shard.columns.begin : zeros_.data());
    return of_sample;
  }
  for (int reader = 0; reader < placement_.ranks; ++reader) {
    const Slice theirs = my_slice(batch.samples, reader, placement_.ranks);
    const T* const from =
        batch.shared ? batch.areas[std::size_t(reader)] + batch.gradients_at +
                           layout_.in_reader(layout_.parts()[part.lead], theirs)
                     : batch.memory->owner.data() + layout_.in_owner(part, theirs, batch.samples, options_.exchange);
    for (std::int64_t s = 0; s < theirs.size(); ++s) of_sample.push_back(from + s * part.width);
  }
  return of_sample;
}

template <class T>
void ShardedTables<T>::sort(Batch& batch) {
  parallel_(std::int64_t(shards_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      if (part_of_[std::size_t(k)] != kNoPart) shards_[std::size_t(k)].sort(batch.lookups[std::size_t(k)]);
  });
}

// After sort().
template <class T>
Status ShardedTables<T>::step(Batch& batch) {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    LocalShard<T>& shard = shards_[k];
    if (part_of_[k] == kNoPart) {
      const auto* const dense = reinterpret_cast<const T*>(batch.memory->dense.at(shard.table()).get());
      shard.step_all(dense, options_.lr, parallel_);
    } else if (!sums_over_columns(shard.table())) {
      const auto gradients = gradients_of(batch, layout_.parts()[part_of_[k]]);
      shard.step(gradients.data(), options_.lr, parallel_);
    }
  }
  return fail(step_column_wise(batch));
}

// Whether what a step needs of a row has to be summed up over the owners of its columns.
template <class T>
bool ShardedTables<T>::sums_over_columns(std::size_t table) const {
  const auto& placed = placement_.tables[table];
  return placed.sharding == TableSharding::kColumnWise && placed.shards.size() > 1 &&
         (options_.rule == TableRule::kRowWiseAdagrad || options_.row_weights == RowWeights::kLearned);
}

template <class T>
Status ShardedTables<T>::step_column_wise(Batch& batch) {
  // By table, the shards of each rank: all ranks know them, and owners of one table agree on its rows, so that they
  // know the sizes of one another's messages.
  bool any = false;
  std::vector<std::vector<T>> sums(tables_.size());  // of my shards, one after another
  std::vector<std::size_t> numbers(tables_.size());  // of one shard
  for (std::size_t t = 0; t < tables_.size(); ++t) any = any || sums_over_columns(t);
  if (!any) return {};
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    const std::size_t t = shards_[k].table();
    if (!sums_over_columns(t)) continue;
    numbers[t] = 2 * std::size_t(shards_[k].different_rows());
    const std::size_t before = sums[t].size();
    sums[t].resize(before + numbers[t]);
    const auto gradients = gradients_of(batch, layout_.parts()[part_of_[k]]);
    shards_[k].sum_columns(gradients.data(), sums[t].data() + before);
  }
  const std::size_t ranks = std::size_t(placement_.ranks);
  const auto shards_on = [&](std::size_t table, std::size_t rank) {
    const auto& shards = placement_.tables[table].shards;
    return std::size_t(std::count_if(shards.begin(), shards.end(),
                                     [&](const TableShard& box) { return std::size_t(box.rank) == rank; }));
  };
  std::vector<T> sent, received;
  std::vector<std::size_t> in_splits(ranks), out_splits(ranks);
  for (std::size_t peer = 0; peer < ranks; ++peer)
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (sums[t].empty() || shards_on(t, peer) == 0) continue;
      sent.insert(sent.end(), sums[t].begin(), sums[t].end());
      in_splits[peer] += sums[t].size();
      out_splits[peer] += shards_on(t, peer) * numbers[t];
    }
  for (const std::size_t count : out_splits) received.resize(received.size() + count);
  if (ranks > 1)
    TUTTI_TRY(
        group_.run(requests::all_to_all(std::span<const T>(sent), in_splits, std::span<T>(received), out_splits)));
  else
    received = sent;
  // Added up in the order of the columns.
  std::vector<std::size_t> next(ranks);  // where the next sums of a rank lie
  for (std::size_t r = 1; r < ranks; ++r) next[r] = next[r - 1] + out_splits[r - 1];
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (sums[t].empty()) continue;
    std::vector<T> total(numbers[t]);
    for (const TableShard& box : placement_.tables[t].shards) {
      const T* const part = received.data() + next[std::size_t(box.rank)];
      next[std::size_t(box.rank)] += numbers[t];
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    }
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      if (shards_[k].table() != t) continue;
      const auto gradients = gradients_of(batch, layout_.parts()[part_of_[k]]);
      shards_[k].step(gradients.data(), total.data(), options_.lr);
    }
  }
  return {};
}

template class ShardedTables<float>;
template class ShardedTables<double>;

}  // namespace tutti
