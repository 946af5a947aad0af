#pragma once
// A batch in flight, and its memory: for the sources of ShardedTables only.
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/thread.h"
#include "tutti/embedding/sharded_tables.h"
#include "tutti/embedding/wire.h"

namespace tutti {

constexpr std::size_t kNoPart = std::size_t(-1);  // of a shard of a replicated table

template <class T>
struct ShardedTables<T>::Memory {
  std::shared_ptr<std::byte> block;  // that peers see
  std::size_t numbers = 0;           // in it
  // Where memory is out of reach: rows as they are pooled for all readers, later gradients as they came; both ends on
  // the wire, if rows are not sent unchanged.
  std::vector<T> owner;
  std::vector<std::byte> owner_wire, reader_wire;
  std::map<std::size_t, std::shared_ptr<std::byte>> dense;  // gradients of replicated tables
};

template <class T>
struct ShardedTables<T>::Batch {
  Batch() = default;
  // Operations in flight use the memory, which a later batch reuses. (When an exception unwinds, Work ends them.)
  ~Batch() {
    if (unwinding.is_past()) return;
    for (const Works* works : {&rows_work, &gradients_work, &dense_work}) const Status ignored = works->wait();
  }
  Batch(const Batch&) = delete;

  enum class Stage { kPosted, kArrived, kSent, kApplied };
  Stage stage = Stage::kPosted;
  std::int64_t samples = 0, number = -1;
  Slice mine;
  std::vector<ShardLookups> lookups;  // by shard
  std::shared_ptr<Memory> memory;
  bool shared = false;    // the peers' blocks are in reach:
  std::vector<T*> areas;  // by rank
  Works rows_work, gradients_work, dense_work;
  const Unwinding unwinding{};
  std::span<const RowGradients<T>> own_gradients;  // one rank: the caller's

  // In a block, the same on every rank.
  std::int64_t assembled_at = 0, gradients_at = 0, numbers = 0;
  void lay_out(std::int64_t units, std::int64_t assembled_width, int ranks) {
    const std::int64_t most = my_slice(samples, 0, ranks).size();
    assembled_at = most * units;
    gradients_at = assembled_at + most * assembled_width;
    numbers = gradients_at + most * units;
  }
  T* rows() const { return reinterpret_cast<T*>(memory->block.get()); }
  T* assembled() const { return rows() + assembled_at; }
  T* gradients() const { return rows() + gradients_at; }

  void make_wire(const ExchangeLayout& layout, int rank, const Wire& wire) {
    const std::int64_t unit = std::int64_t(size_of(wire.dtype));
    memory->owner_wire.resize(std::size_t(samples * layout.units_of(rank) * unit));
    memory->reader_wire.resize(std::size_t(mine.size() * layout.units() * unit));
  }
};

}  // namespace tutti
