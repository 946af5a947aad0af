// The planner decides three things: whether to replicate a table, whether to split it and into how many parts, and
// where its parts go. The first two decisions need only the cost of the table; only the third considers ranks.
#include "tutti/planning/tables/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "tutti/base/text.h"

namespace tutti {
namespace {

// Bytes of a lookup in addition to its row: the index is read; the use is written, sorted twice and read.
constexpr double kLookupBytes = 8 + 5 * 16;

std::int64_t kept_bytes(const TableShard& shard, const PlannerOptions& options) {
  const std::int64_t a_row = shard.columns.size() * (1 + options.state_numbers_a_column) + options.state_numbers_a_row;
  return shard.rows.size() * a_row * options.number_bytes;
}

// What a batch costs the rank that holds a part. `sent`: pooled rows to other ranks, which return as many gradients;
// `reduced`: gradients of a replicated table, which all ranks sum.
struct Traffic {
  double forward = 0, backward = 0, sent = 0, reduced = 0;
  double moved(const PlannerOptions& options) const {
    const double n = options.ranks;
    return forward + backward + options.sent_weight * (2 * sent + 2 * (n - 1) / n * reduced);
  }
};

// A row is read in the forward pass, and read and written in the step. A pooled row is written and read, and so is its
// gradient. In a replicated table this saves one transfer each, because they stay on the rank.
Traffic traffic_of(const TableSpec& table, TableSharding sharding, const TableShard& shard,
                   const PlannerOptions& options) {
  const double lookups = double(options.batch) * table.lookups, width = double(shard.columns.size());
  const double row = width * double(options.number_bytes), pooled = 2 * double(options.batch) * row;
  const double share = double(shard.rows.size()) / double(table.rows);  // of the lookups
  const double others = double(options.ranks - 1) / options.ranks, n = options.ranks;
  switch (sharding) {
    case TableSharding::kTableWise:
    case TableSharding::kColumnWise:
      return {.forward = lookups * (row + 8) + pooled,
              .backward = lookups * (2 * row + kLookupBytes - 8) + pooled,
              .sent = others * pooled / 2};
    case TableSharding::kRowWise:  // the reader adds partial sums
      return {.forward = lookups * (8 + share * (row + 8)) + 2 * pooled,
              .backward = lookups * share * (2 * row + kLookupBytes - 8) + pooled,
              .sent = others * pooled / 2};
    case TableSharding::kReplicated:  // a share of the samples; then a reduction and a step of all rows
      return {.forward = (lookups * (row + 8) + pooled / 2) / n,
              .backward = (lookups * 2 * row + pooled / 2) / n + 6 * double(table.rows) * row,
              .reduced = double(table.rows) * row};
  }
  return {};
}

double moved_bytes(const TableSpec& table, TableSharding sharding, const TableShard& shard,
                   const PlannerOptions& options) {
  return traffic_of(table, sharding, shard, options).moved(options);
}

struct TablePart {
  std::size_t table;
  TableShard shard;
  double moved;
  std::int64_t kept;
};

class Planner {
 public:
  Planner(std::span<const TableSpec> tables, const PlannerOptions& options)
      : tables_(tables), options_(options), moved_(std::size_t(options.ranks)), kept_(std::size_t(options.ranks)) {
    placement_.ranks = options.ranks;
    placement_.tables.resize(tables.size());
  }

  Result<TablePlacement> plan() {
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (should_replicate(t)) replicate(t);
    double left = 0;
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (placement_.tables[t].shards.empty()) left += whole_cost(t);
    const double share = left / options_.ranks;
    std::vector<TablePart> parts;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (!placement_.tables[t].shards.empty()) continue;
      placement_.tables[t] = cut(t, share);
      for (const TableShard& shard : placement_.tables[t].shards)
        parts.push_back({t, shard, moved_bytes(tables_[t], placement_.tables[t].sharding, shard, options_),
                         kept_bytes(shard, options_)});
      placement_.tables[t].shards.clear();
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const TablePart& a, const TablePart& b) { return a.moved > b.moved; });
    // If memory is limited, the largest parts must be placed first.
    if (options_.memory_bytes > 0)
      std::stable_sort(parts.begin(), parts.end(), [&](const TablePart& a, const TablePart& b) {
        return std::max(a.kept, b.kept) > options_.memory_bytes / 4 && a.kept > b.kept;
      });
    for (const TablePart& part : parts) TUTTI_TRY(place(part));
    for (auto& table : placement_.tables)
      if (table.sharding == TableSharding::kRowWise || table.sharding == TableSharding::kColumnWise)
        std::sort(table.shards.begin(), table.shards.end(), [](const TableShard& a, const TableShard& b) {
          return std::pair(a.rows.begin, a.columns.begin) < std::pair(b.rows.begin, b.columns.begin);
        });
    return placement_;
  }

 private:
  TableShard whole(std::size_t t) const { return {0, {0, tables_[t].rows}, {0, tables_[t].dim}}; }
  double whole_cost(std::size_t t) const {
    return moved_bytes(tables_[t], TableSharding::kTableWise, whole(t), options_);
  }
  bool fits(std::int64_t bytes) const { return options_.memory_bytes == 0 || bytes <= options_.memory_bytes; }

  bool should_replicate(std::size_t t) const {
    if (options_.table_wise_only || options_.ranks == 1) return false;
    const std::int64_t kept = kept_bytes(whole(t), options_);
    // A replica takes memory on every rank. Small tables may take a tenth of it.
    if (options_.memory_bytes > 0 && kept_[0] + kept > options_.memory_bytes / 10) return false;
    return moved_bytes(tables_[t], TableSharding::kReplicated, whole(t), options_) < whole_cost(t) / options_.ranks;
  }
  void replicate(std::size_t t) {
    placement_.tables[t] = place_everywhere(tables_[t], options_.ranks);
    for (std::size_t r = 0; r < moved_.size(); ++r) {
      moved_[r] += moved_bytes(tables_[t], TableSharding::kReplicated, whole(t), options_);
      kept_[r] += kept_bytes(whole(t), options_);
    }
  }

  // Splits into as few parts as possible such that no part exceeds a share or a rank's memory. Picks the axis that
  // moves less.
  TablePlacement::Table cut(std::size_t t, double share) const {
    const TableSpec& table = tables_[t];
    const std::int64_t kept = kept_bytes(whole(t), options_);
    const bool too_large = !fits(kept);
    if (options_.table_wise_only || options_.ranks == 1 || (!too_large && whole_cost(t) <= share * 1.1))
      return place_whole(table, 0);
    const auto worst = [&](const TablePlacement::Table& placed) {
      double most = 0;
      for (const TableShard& shard : placed.shards)
        most = std::max(most, moved_bytes(table, placed.sharding, shard, options_));
      return most;
    };
    const auto all_fit = [&](const TablePlacement::Table& placed) {
      return std::all_of(placed.shards.begin(), placed.shards.end(),
                         [&](const TableShard& shard) { return fits(kept_bytes(shard, options_)); });
    };
    std::optional<TablePlacement::Table> best, smallest;  // among those that fit; among all
    for (int parts = 2; parts <= options_.ranks; ++parts) {
      std::vector<int> ranks(static_cast<std::size_t>(parts));
      std::iota(ranks.begin(), ranks.end(), 0);
      std::vector<TablePlacement::Table> tries;
      if (table.dim / parts >= options_.least_columns) tries.push_back(place_by_columns(table, ranks));
      if (table.rows >= parts) tries.push_back(place_by_rows(table, ranks));
      for (auto& one : tries) {
        if (all_fit(one) && (!best || worst(one) < worst(*best))) best = one;
        smallest = std::move(one);
      }
      if (best && worst(*best) <= share * 1.1) break;
    }
    if (best && (too_large || worst(*best) < whole_cost(t))) return *best;
    return too_large && smallest ? *smallest : place_whole(table, 0);  // if too large, place() reports what is missing
  }

  Status place(const TablePart& part) {
    int best = -1;
    for (int r = 0; r < options_.ranks; ++r) {
      if (!fits(kept_[std::size_t(r)] + part.kept)) continue;
      if (best < 0 || moved_[std::size_t(r)] < moved_[std::size_t(best)]) best = r;
    }
    if (best < 0) return no_room(part);
    TableShard shard = part.shard;
    shard.rank = best;
    placement_.tables[part.table].shards.push_back(shard);
    moved_[std::size_t(best)] += part.moved;
    kept_[std::size_t(best)] += part.kept;
    return {};
  }

  Error no_room(const TablePart& part) const {
    std::int64_t all = 0;
    for (std::size_t t = 0; t < tables_.size(); ++t) all += kept_bytes(whole(t), options_);
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("no rank has room for {} of table {}: all tables take {}, and {} ranks have {} "
                                       "each",
                                       bytes_text(std::uint64_t(part.kept)), tables_[part.table].name,
                                       bytes_text(std::uint64_t(all)), options_.ranks,
                                       bytes_text(std::uint64_t(options_.memory_bytes))),
                 .hint = options_.table_wise_only ? "allow tables to be cut, or more ranks, or more memory"
                                                  : "more ranks, or more memory on each"};
  }

  std::span<const TableSpec> tables_;
  const PlannerOptions& options_;
  TablePlacement placement_;
  std::vector<double> moved_;
  std::vector<std::int64_t> kept_;
};

// "row-wise on ranks 0-3", "table-wise on rank 2"
std::string where_text(const TablePlacement::Table& placed) {
  if (placed.sharding == TableSharding::kReplicated) return "replicated on all";
  std::vector<int> ranks;
  for (const TableShard& shard : placed.shards) ranks.push_back(shard.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return fmt::format("{} on {}", name(placed.sharding), ranks_words(ranks));
}

}  // namespace

Result<TablePlacement> plan_tables(std::span<const TableSpec> tables, const PlannerOptions& options) {
  if (options.ranks < 1) return invalid_argument(fmt::format("a placement on {} ranks", options.ranks));
  for (const TableSpec& table : tables)
    if (table.rows < 1 || table.dim < 1 || !(table.lookups >= 0))
      return invalid_argument(fmt::format("table {} has {} rows of {} numbers and {} lookups a sample", table.name,
                                          table.rows, table.dim, table.lookups));
  auto placement = TUTTI_TRY(Planner(tables, options).plan());
  TUTTI_TRY(check(placement, tables));
  return placement;
}

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = {"auto",     "table-wise",  "count",
                                                 "row-wise", "column-wise", "replicated"};
  return names;
}

Result<TablePlacement> place_by_name(const std::string& name, std::span<const TableSpec> tables,
                                     PlannerOptions options) {
  if (name == "count") return place_by_count(tables, options.ranks);
  if (name == "row-wise") return place_all(TableSharding::kRowWise, tables, options.ranks);
  if (name == "column-wise") return place_all(TableSharding::kColumnWise, tables, options.ranks);
  if (name == "replicated") return place_all(TableSharding::kReplicated, tables, options.ranks);
  options.table_wise_only = name == "table-wise";
  return plan_tables(tables, options);
}

PlacementCost cost_of(const TablePlacement& placement, std::span<const TableSpec> tables,
                      const PlannerOptions& options) {
  const std::size_t ranks = std::size_t(placement.ranks);
  PlacementCost cost{.bytes_moved = std::vector<double>(ranks),
                     .bytes_forward = std::vector<double>(ranks),
                     .bytes_backward = std::vector<double>(ranks),
                     .bytes_sent = std::vector<double>(ranks),
                     .bytes_kept = std::vector<std::int64_t>(ranks)};
  for (std::size_t t = 0; t < tables.size(); ++t)
    for (const TableShard& shard : placement.tables[t].shards) {
      const std::size_t rank = std::size_t(shard.rank);
      const Traffic traffic = traffic_of(tables[t], placement.tables[t].sharding, shard, options);
      cost.bytes_moved[rank] += traffic.moved(options);
      cost.bytes_forward[rank] += traffic.forward;
      cost.bytes_backward[rank] += traffic.backward;
      cost.bytes_sent[rank] += traffic.sent;
      cost.bytes_kept[rank] += kept_bytes(shard, options);
      if (rank == 0) cost.bytes_reduced += traffic.reduced;  // a replicated table is on every rank
    }
  const double all = std::accumulate(cost.bytes_moved.begin(), cost.bytes_moved.end(), 0.0);
  const double most = *std::max_element(cost.bytes_moved.begin(), cost.bytes_moved.end());
  if (all > 0) cost.imbalance = most * double(ranks) / all;
  return cost;
}

std::string placement_text(const TablePlacement& placement, std::span<const TableSpec> tables,
                           const PlannerOptions& options) {
  std::size_t widest = 5;
  for (const TableSpec& table : tables) widest = std::max(widest, table.name.size());
  std::string text = fmt::format("{:{}} {:>12} {:>5} {:>8}  placement\n", "table", widest, "rows", "dim", "lookups");
  for (std::size_t t = 0; t < tables.size(); ++t)
    text += fmt::format("{:{}} {:>12} {:>5} {:>8.4g}  {}\n", tables[t].name, widest, tables[t].rows, tables[t].dim,
                        tables[t].lookups, where_text(placement.tables[t]));
  const PlacementCost cost = cost_of(placement, tables, options);
  text += fmt::format("{:>5} {:>12} {:>16}\n", "rank", "memory", "moved a batch");
  for (std::size_t r = 0; r < cost.bytes_moved.size(); ++r)
    text += fmt::format("{:>5} {:>12} {:>16}\n", r, bytes_text(std::uint64_t(cost.bytes_kept[r])),
                        bytes_text(std::uint64_t(cost.bytes_moved[r])));
  return text + fmt::format("imbalance {:.3f} (the busiest rank over the mean)\n", cost.imbalance);
}

}  // namespace tutti
