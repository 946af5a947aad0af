#include "tutti/embedding/layout.h"

#include <algorithm>

namespace tutti {

ExchangeLayout::ExchangeLayout(const TablePlacement& placement, std::int64_t (*unit_rows)(std::int64_t width))
    : owner_units_(std::size_t(placement.ranks)), before_owner_(std::size_t(placement.ranks) + 1) {
  std::vector<std::size_t> lead(placement.tables.size());
  for (int owner = 0; owner < placement.ranks; ++owner) {
    before_owner_[std::size_t(owner)] =
        before_owner_[std::size_t(std::max(owner - 1, 0))] + (owner > 0 ? owner_units_[std::size_t(owner) - 1] : 0);
    std::int64_t& in_owner = owner_units_[std::size_t(owner)];
    for (std::size_t t = 0; t < placement.tables.size(); ++t) {
      if (placement.tables[t].sharding == TableSharding::kReplicated) continue;
      for (const TableShard& shard : placement.tables[t].shards) {
        if (shard.rank != owner) continue;
        const std::int64_t width = shard.columns.size(), units = unit_rows(width);
        parts_.push_back({.owner = owner,
                          .table = t,
                          .shard = shard,
                          .width = width,
                          .units = units,
                          .before = before_owner_[std::size_t(owner)] + in_owner,
                          .in_owner = in_owner,
                          .lead = parts_.size()});
        in_owner += units;
      }
    }
  }
  before_owner_.back() = before_owner_[before_owner_.size() - 2] + owner_units_.back();
  for (ExchangePart& part : parts_) {
    if (placement.tables[part.table].sharding != TableSharding::kRowWise) continue;
    const auto first = std::find_if(parts_.begin(), parts_.end(),
                                    [&](const ExchangePart& other) { return other.table == part.table; });
    part.lead = std::size_t(first - parts_.begin());
  }
}

}  // namespace tutti
