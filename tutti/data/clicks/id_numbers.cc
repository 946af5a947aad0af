// Numbers in the order of first appearance, in bounded memory. One table of all ids is the obvious way, and for most
// columns of Criteo it fits. Where it does not, several passes over the column do it, each with a table of as many ids
// as memory holds: a pass numbers the first ids that have no number yet, in the order in which it meets them, until the
// table is full; from there on it only looks ids up, and what is not found stays open, a bit per value. The order comes
// out right because an id that a pass did not take has its first appearance behind those of all ids that it took.
//
// The first pass is the stream in which the text is read. When a table can no longer grow there, its column stops as a
// whole (its memory then serves the others), and the next passes begin by finding the ids that have numbers already.
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
    std::uint64_t values = 0;
    for (const auto& run : column_.runs) values += run.count;
    const std::uint64_t words = (values - numbers_.position_ + 63) / 64;
    if (!budget_.take(8 * words)) return too_little("a bit for each value of a column");
    const Status status = run_passes(words);
    budget_.give_back(8 * words);
    return status;
  }

 private:
  Status run_passes(std::uint64_t words) {
    numbers_.table_ = std::make_unique<IdTable>(budget_);
    open_.assign(words, ~std::uint64_t(0));
    const std::uint64_t known = numbers_.count_;
    for (std::uint64_t read = 0, open_before = 0;; open_before = open_count_) {
      const std::uint64_t read_before = read;
      TUTTI_TRY(read_known_ids(read, known));
      adding_ = read == known;
      open_count_ = 0;
      TUTTI_TRY(pass());
      TUTTI_TRY(numbers_.write_new_ids());
      numbers_.table_->clear();
      if (open_count_ == 0) break;
      if (read == read_before && open_count_ == open_before) return too_little("the table of a single id");
    }
    numbers_.stopped_ = false;
    return numbers_.close();
  }

  static Error too_little(const char* what) {
    return {.code = Code::kLimit,
            .detail = std::string("the memory allowed does not hold ") + what,
            .hint = "allow more: --memory"};
  }

  // Ids that have numbers, from number `at` on, as many as the table takes; `at` is then the next.
  Status read_known_ids(std::uint64_t& at, std::uint64_t known) {
    std::vector<std::uint32_t> ids(kIdsAtOnce);
    while (at < known) {
      const std::size_t some = std::size_t(std::min<std::uint64_t>(ids.size(), known - at));
      TUTTI_TRY(numbers_.ids_.read(4 * at, std::as_writable_bytes(std::span(ids).first(some))));
      for (std::size_t i = 0; i < some; ++i, ++at)
        if (!numbers_.table_->add(ids[i], std::uint32_t(at))) return {};
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
      const std::uint32_t number =
          adding_ ? TUTTI_TRY(numbers_.number_of(values[i])) : numbers_.table_->find(values[i]);
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
  bool adding_ = false;  // whether the pass gives new numbers, or only finds known ones
};

Status finish_column(ColumnNumbers& numbers, const ColumnRuns& column, MemoryBudget& budget) {
  return ColumnPasses(numbers, column, budget).run();
}

}  // namespace tutti
