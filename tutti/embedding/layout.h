#pragma once
// Where pooled rows lie in the buffers of an exchange: arithmetic, the same on every rank.
//
// A part is what one shard contributes: for each sample, `width` numbers. A rank that has shards is an owner, a rank
// that has samples a reader (mostly it is both). Parts are ordered by owner, then table, then place in the table. The
// reader's buffer holds all parts, one after another, each [my samples, width]; so what comes from one owner is one
// piece, and a table-wise part is the table's result as it lies. The owner's buffer holds the same pieces, by reader;
// or, for scatter_list, by part, each [samples, width]. Replicated tables have no parts.
//
// All offsets are in units: numbers, or what one takes on the wire (wire.h).
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/embedding/options.h"
#include "tutti/planning/tables/placement.h"

namespace tutti {

struct ExchangePart {
  int owner = 0;
  std::size_t table = 0;
  TableShard shard;
  std::int64_t width = 0;     // numbers of a row
  std::int64_t units = 0;     // that a row takes
  std::int64_t before = 0;    // units of a sample in all parts before it
  std::int64_t in_owner = 0;  // units of a sample in the parts before it of the same owner
  std::size_t lead = 0;  // the first part of a table that is cut by rows: all of them get one gradient; else itself
};

class ExchangeLayout {
 public:
  // `unit_rows(width)`: the units of a row.
  ExchangeLayout(const TablePlacement& placement, std::int64_t (*unit_rows)(std::int64_t width));

  const std::vector<ExchangePart>& parts() const { return parts_; }
  std::int64_t units() const { return before_owner_.back(); }                          // of a sample, all parts
  std::int64_t units_of(int owner) const { return owner_units_[std::size_t(owner)]; }  // of a sample
  std::int64_t before(int owner) const { return before_owner_[std::size_t(owner)]; }

  // Where the rows of `part` begin for `mine`, the samples of a reader, in its buffer.
  std::int64_t in_reader(const ExchangePart& part, Slice mine) const { return mine.size() * part.before; }
  // Where the rows of `part` for a reader's samples begin in the owner's buffer.
  std::int64_t in_owner(const ExchangePart& part, Slice theirs, std::int64_t samples, TableExchange kind) const {
    return kind == TableExchange::kScatterList ? samples * part.in_owner + theirs.begin * part.units
                                               : theirs.begin * units_of(part.owner) + theirs.size() * part.in_owner;
  }

 private:
  std::vector<ExchangePart> parts_;
  std::vector<std::int64_t> owner_units_, before_owner_;  // the latter with one more, the sum
};

}  // namespace tutti
