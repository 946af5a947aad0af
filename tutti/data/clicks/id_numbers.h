#pragma once
// Ids of a column numbered in the order in which they first appear: 0, 1, 2, ...
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/placed_file.h"

namespace tutti {

// Bytes that several tables may take together. Any thread may call these.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes) : left_(std::int64_t(bytes)) {}
  bool take(std::uint64_t bytes) {
    if (left_.fetch_sub(std::int64_t(bytes)) >= std::int64_t(bytes)) return true;
    give_back(bytes);
    return false;
  }
  void give_back(std::uint64_t bytes) { left_.fetch_add(std::int64_t(bytes)); }

 private:
  std::atomic<std::int64_t> left_;
};

// A hash table from ids to their numbers, which grows as long as the budget lets it.
class IdTable {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t(0);

  explicit IdTable(MemoryBudget& budget) : budget_(&budget) {}
  ~IdTable() { clear(); }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // The number of an id, or kNone.
  std::uint32_t find(std::uint32_t id) const;
  // False, and nothing is added, where the budget has no room for one more. The id must not be there yet.
  bool add(std::uint32_t id, std::uint32_t number);
  void prefetch(std::uint32_t id) const {
    if (mask_ != 0) __builtin_prefetch(&slots_[place(id)]);
  }
  void clear();  // gives its memory back

 private:
  struct Slot {
    std::uint32_t id, number;
  };
  std::size_t place(std::uint32_t id) const { return std::size_t((id * 0x9e3779b97f4a7c15u) >> 32) & mask_; }
  void put(std::uint32_t id, std::uint32_t number);
  bool grow();

  MemoryBudget* budget_;
  std::unique_ptr<Slot[]> slots_;
  std::size_t mask_ = 0, used_ = 0;  // slots - 1; 0: none yet
};

// Numbers one column as it streams by. Where its table no longer fits, it stops; the rest of the column keeps its ids,
// and finish_column() numbers it later. One thread at a time.
class ColumnNumbers {
 public:
  // The ids go to `ids_path` in the order of their numbers, four bytes each.
  static Result<ColumnNumbers> create(const std::string& ids_path, MemoryBudget& budget);

  // Replaces ids by numbers in the next values of the column; those after stopped_at() are left as they are.
  Status number(std::span<std::uint32_t> values);
  std::uint64_t count() const { return count_; }  // ids so far
  bool stopped() const { return stopped_; }
  std::uint64_t stopped_at() const { return position_; }  // how many values have been numbered
  // Writes the last ids, and gives the table's memory back.
  Status close();

 private:
  friend class ColumnPasses;
  ColumnNumbers(PlacedFile ids, MemoryBudget& budget)
      : ids_(std::move(ids)), table_(std::make_unique<IdTable>(budget)) {}
  // The number of an id, a new one if need be; kNone where the table is full.
  Result<std::uint32_t> number_of(std::uint32_t id);
  Status write_new_ids();

  PlacedFile ids_;
  std::unique_ptr<IdTable> table_;
  std::vector<std::uint32_t> new_ids_;  // not yet written
  std::uint64_t count_ = 0, written_ = 0, position_ = 0;
  bool stopped_ = false;
};

// A column that lies in a file in runs of values.
struct ColumnRuns {
  const PlacedFile& file;
  struct Run {
    std::uint64_t at;     // byte in the file
    std::uint64_t count;  // values
  };
  std::vector<Run> runs;
};
// Numbers what `numbers` left, in as many passes over the column as its ids need with `budget`.
Status finish_column(ColumnNumbers& numbers, const ColumnRuns& column, MemoryBudget& budget);

}  // namespace tutti
