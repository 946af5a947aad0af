// Numbers in the order of first appearance, in bounded memory. One table of all ids is the obvious way, and for most
// columns of Criteo it fits. Where it does not, several passes over the column do it, each with a table of as many ids
// as memory holds: a pass numbers the first ids that have no number yet, in the order in which it meets them, until the
// table is full; from there on it only looks ids up, and what is not found stays open, a bit per value. The order comes
// out right because an id that a pass did not take has its first appearance behind those of all ids that it took.
//
// The first pass is the stream in which the text is read. When a table can no longer grow there, its column stops as a
// whole (its memory then serves the others), and the next pass begins by reading the ids that have numbers already.
#include "tutti/data/clicks/id_numbers.h"

#include <algorithm>
#include <new>

namespace tutti {
namespace {

constexpr std::size_t kFirstSlots = 1024;
constexpr std::size_t kAhead = 12;  // values between asking for a slot's cache line and reading it
constexpr std::size_t kIdsAtOnce = 1 << 16;

}  // namespace

std::uint32_t IdTable::find(std::uint32_t id) const {
  if (mask_ == 0) return kNone;
  for (std::size_t at = place(id);; at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.number == kNone || slot.id == id) return slot.number;
  }
}

bool IdTable::add(std::uint32_t id, std::uint32_t number) {
  if (used_ >= mask_ / 8 * 5 && !grow()) return false;
  put(id, number);
  ++used_;
  return true;
}

void IdTable::put(std::uint32_t id, std::uint32_t number) {
  std::size_t at = place(id);
  while (slots_[at].number != kNone) at = (at + 1) & mask_;
  slots_[at] = {id, number};
}

bool IdTable::grow() {
  const std::size_t before = mask_ == 0 ? 0 : mask_ + 1, after = before == 0 ? kFirstSlots : 2 * before;
  if (!budget_->take(after * sizeof(Slot))) return false;
  std::unique_ptr<Slot[]> old(slots_.release());
  slots_.reset(new Slot[after]);
  std::fill_n(slots_.get(), after, Slot{0, kNone});
  mask_ = after - 1;
  for (std::size_t i = 0; i < before; ++i)
    if (old[i].number != kNone) put(old[i].id, old[i].number);
  budget_->give_back(before * sizeof(Slot));
  return true;
}

void IdTable::clear() {
  if (mask_ != 0) budget_->give_back((mask_ + 1) * sizeof(Slot));
  slots_.reset();
  mask_ = used_ = 0;
}

Result<ColumnNumbers> ColumnNumbers::create(const std::string& ids_path, MemoryBudget& budget) {
  return ColumnNumbers(TUTTI_TRY(PlacedFile::create(ids_path)), budget);
}

Result<std::uint32_t> ColumnNumbers::number_of(std::uint32_t id) {
  const std::uint32_t known = table_->find(id);
  if (known != IdTable::kNone) return known;
  if (count_ == IdTable::kNone)
    return Error{.code = Code::kLimit, .detail = "a column has 2^32 - 1 different ids, and no number is left"};
  if (!table_->add(id, std::uint32_t(count_))) return IdTable::kNone;
  new_ids_.push_back(id);
  if (new_ids_.size() == kIdsAtOnce) TUTTI_TRY(write_new_ids());
  return std::uint32_t(count_++);
}

Status ColumnNumbers::number(std::span<std::uint32_t> values) {
  if (stopped_) return {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i + kAhead < values.size()) table_->prefetch(values[i + kAhead]);
    const std::uint32_t known = table_->find(values[i]);
    const std::uint32_t number = known != IdTable::kNone ? known : TUTTI_TRY(number_of(values[i]));
    if (number == IdTable::kNone) {
      stopped_ = true;
      return close();
    }
    values[i] = number;
    ++position_;
  }
  return {};
}

Status ColumnNumbers::write_new_ids() {
  TUTTI_TRY(ids_.write(4 * written_, std::as_bytes(std::span(new_ids_))));
  written_ += new_ids_.size();
  new_ids_.clear();
  return {};
}

Status ColumnNumbers::close() {
  table_->clear();
  TUTTI_TRY(write_new_ids());
  return ids_.flush();
}

// The passes after the stream.
class ColumnPasses {
 public:
  ColumnPasses(ColumnNumbers& numbers, const ColumnRuns& column, MemoryBudget& budget)
      : numbers_(numbers), column_(column), budget_(budget) {}

  Status run() {
    numbers_.table_ = std::make_unique<IdTable>(budget_);
    TUTTI_TRY(read_known_ids());
    std::uint64_t values = 0;
    for (const auto& run : column_.runs) values += run.count;
    open_.assign((values - numbers_.position_ + 63) / 64, ~std::uint64_t(0));
    for (std::uint64_t open_before = 0;; open_before = open_count_) {
      open_count_ = 0;
      TUTTI_TRY(pass());
      TUTTI_TRY(numbers_.write_new_ids());
      numbers_.table_->clear();
      if (open_count_ == 0) break;
      if (open_count_ == open_before)
        return Error{.code = Code::kLimit,
                     .detail = "the memory allowed does not hold the table of a single id",
                     .hint = "allow more: --memory"};
    }
    numbers_.stopped_ = false;
    return numbers_.close();
  }

 private:
  // As many as fit; those that do not are open again, and found by no pass: so all must.
  Status read_known_ids() {
    std::vector<std::uint32_t> ids(kIdsAtOnce);
    for (std::uint64_t at = 0; at < numbers_.count_;) {
      const std::size_t some = std::size_t(std::min<std::uint64_t>(ids.size(), numbers_.count_ - at));
      TUTTI_TRY(numbers_.ids_.read(4 * at, std::as_writable_bytes(std::span(ids).first(some))));
      for (std::size_t i = 0; i < some; ++i, ++at)
        if (!numbers_.table_->add(ids[i], std::uint32_t(at)))
          return Error{.code = Code::kLimit,
                       .detail = "the memory allowed does not hold the ids that one column had so far",
                       .hint = "allow more: --memory"};
    }
    return {};
  }

  Status pass() {
    std::vector<std::uint32_t> values;
    std::uint64_t first = 0;  // of the run, among the column's values
    for (const auto& run : column_.runs) {
      const std::uint64_t skip = numbers_.position_ > first ? std::min(numbers_.position_ - first, run.count) : 0;
      values.resize(run.count - skip);
      const std::uint64_t at = run.at + 4 * skip;
      const std::uint64_t place = first + skip - numbers_.position_;  // among the open bits
      first += run.count;
      if (values.empty()) continue;
      TUTTI_TRY(column_.file.read(at, std::as_writable_bytes(std::span(values))));
      if (TUTTI_TRY(number_open(values, place))) TUTTI_TRY(column_.file.write(at, std::as_bytes(std::span(values))));
    }
    return {};
  }

  Result<bool> number_open(std::span<std::uint32_t> values, std::uint64_t place) {
    bool changed = false;
    for (std::size_t i = 0; i < values.size(); ++i, ++place) {
      if (i + kAhead < values.size()) numbers_.table_->prefetch(values[i + kAhead]);
      const std::uint64_t bit = std::uint64_t(1) << (place % 64);
      if (!(open_[place / 64] & bit)) continue;
      const std::uint32_t number = TUTTI_TRY(numbers_.number_of(values[i]));
      if (number == IdTable::kNone) {
        ++open_count_;
        continue;
      }
      values[i] = number;
      open_[place / 64] &= ~bit;
      changed = true;
    }
    return changed;
  }

  ColumnNumbers& numbers_;
  const ColumnRuns& column_;
  MemoryBudget& budget_;
  std::vector<std::uint64_t> open_;  // a bit for each value from numbers_.position_ on
  std::uint64_t open_count_ = 0;
};

Status finish_column(ColumnNumbers& numbers, const ColumnRuns& column, MemoryBudget& budget) {
  return ColumnPasses(numbers, column, budget).run();
}

}  // namespace tutti
