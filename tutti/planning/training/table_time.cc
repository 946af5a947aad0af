// The constants were measured on one core of a Xeon with 2 MiB of L2 cache, whose stream is 24.6 GB/s: tables of 200 to
// 2,000,000 rows of 16 to 128 floats, 10,000 to 100,000 uniform lookups a batch. The mean error is 16 %. Those of the
// interaction: 8 to 27 vectors of 16 to 128 floats, within 20 %.
#include "tutti/planning/training/table_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/planning/training/device_time.h"

namespace tutti::planning {
namespace {

constexpr double kLookup = 1e-9;  // the loop's instructions
constexpr double kSort = 11e-9;   // of a lookup, whatever the width of its row
constexpr double kPick = 3.5e-9;  // an index is compared with the rows of a part
constexpr double kCopy = 20e-9;   // the copy of a row besides its bytes
constexpr double kCachedLine = 0.6e-9;
constexpr double kLine = 64;                 // bytes
constexpr double kRandomShare = 0.65;        // of the stream's bandwidth, reached by rows at random places
constexpr double kNear = 2.0 * 1024 * 1024;  // the cache of a core
// Beyond so much, addresses are no longer translated by what the core keeps, and a row takes kFarRow more.
constexpr double kFar = 64.0 * 1024 * 1024, kFarRow = 9e-9;

// A pair of vectors in the dot interaction, and each of their numbers. The horizontal sum of a product, and the slope
// of a gradient, take longer than the numbers of a short vector.
constexpr double kDot = 8e-9, kDotNumber = 0.06e-9, kDotGradient = 6e-9, kDotGradientNumber = 0.2e-9;

// The loops of a rank are divided among its cores, or share one with other ranks. The ranks with the fewest cores
// count.
double slower(const Cluster& cluster) {
  double cores = std::numeric_limits<double>::infinity();  // of a rank
  for (const ClusterNodes& nodes : cluster.nodes)
    cores = std::min(cores, std::max(1.0, std::floor(double(nodes.cores) / nodes.devices)));
  return slowness(cluster) / cores;
}

// The share of uniform accesses to so many bytes that a cache does not have.
double missing(double bytes, double cache) { return bytes > cache ? 1 - cache / bytes : 0; }

double different_rows(double lookups, double rows) { return rows * -std::expm1(-lookups / rows); }

double lines_of(double bytes) { return std::ceil(bytes / kLine); }

// Of a part of a table.
struct Part {
  double rows, width, lookups;                  // of a batch
  double row, state_row, bytes, stream, cores;  // row: bytes; state_row: and of its state
  double lines() const { return lines_of(row); }

  double pooled() const {
    const double line = missing(bytes, kNear) * kLine / (kRandomShare * stream);
    return lookups * (cores * (kLookup + lines() * kCachedLine) + lines() * line + missing(bytes, kFar) * kFarRow);
  }
  // Gradients are summed by row, which reads one of a cache for each lookup; each different row is read and written.
  double stepped() const {
    const double written = 2 * kLine * (lines() + (state_row > 0 ? lines_of(state_row) : 0)) / stream;
    return lookups * cores * (kLookup + 2 * lines() * kCachedLine) +
           different_rows(lookups, rows) * missing(bytes, kNear) * written;
  }
};

Part part_of(const Cluster& cluster, const TableSpec& table, TableSharding sharding, const TableShard& shard,
             const PlannerOptions& options) {
  const double number = double(options.number_bytes), width = double(shard.columns.size());
  const double state = width * double(options.state_numbers_a_column) + double(options.state_numbers_a_row);
  return {.rows = double(shard.rows.size()),
          .width = width,
          .lookups = lookups_of_part(table, sharding, shard, options),
          .row = width * number,
          .state_row = state * number,
          .bytes = double(shard.rows.size()) * width * number,
          .stream = cluster.device.stream_bandwidth / slowness(cluster),
          .cores = slower(cluster)};
}

}  // namespace

double lookups_of_part(const TableSpec& table, TableSharding sharding, const TableShard& shard,
                       const PlannerOptions& options) {
  const double all = double(options.batch) * table.lookups;
  switch (sharding) {
    case TableSharding::kTableWise:
    case TableSharding::kColumnWise:
      return all;
    case TableSharding::kRowWise:
      return all * double(shard.rows.size()) / double(table.rows);
    case TableSharding::kReplicated:
      return all / options.ranks;
  }
  return all;
}

TableTime time_of_part(const Cluster& cluster, const TableSpec& table, TableSharding sharding, const TableShard& shard,
                       const PlannerOptions& options) {
  const Part part = part_of(cluster, table, sharding, shard, options);
  const double pooled = double(options.batch) * part.row / part.stream;
  if (sharding == TableSharding::kReplicated) {
    // Gradients are added to those of a whole table, which is cleared, summed over the ranks, and searched.
    const double line = missing(part.bytes, kNear) * 2 * kLine / part.stream;
    const double added = part.lookups * (part.cores * (kLookup + 4 * part.lines() * kCachedLine) + part.lines() * line);
    Part everywhere = part;
    everywhere.lookups *= options.ranks;
    everywhere.lookups = different_rows(everywhere.lookups, part.rows);
    return {.forward = part.pooled() + pooled / options.ranks,
            .backward = added + 6 * part.bytes / part.stream + everywhere.stepped()};
  }
  TableTime time{.forward = part.pooled() + pooled, .backward = part.lookups * part.cores * kSort + part.stepped()};
  if (part.rows < double(table.rows)) time.forward += double(options.batch) * table.lookups * part.cores * kPick;
  // The squares of a row are summed over its parts before the first one is updated.
  if (sharding == TableSharding::kColumnWise && part.width < double(table.dim) && options.state_numbers_a_row > 0)
    time.backward += part.stepped();
  return time;
}

TableTime time_of_reader(const Cluster& cluster, const TableSpec& table, const TablePlacement::Table& placed,
                         const PlannerOptions& options) {
  if (options.ranks == 1 || placed.sharding == TableSharding::kReplicated) return {};
  const double samples = double(options.batch) / options.ranks, parts = double(placed.shards.size());
  const double stream = cluster.device.stream_bandwidth / slowness(cluster);
  const double rows = samples * double(table.dim) * double(options.number_bytes) / stream,
               copy = slower(cluster) * kCopy;
  switch (placed.sharding) {
    case TableSharding::kTableWise:
      return {.backward = 2 * rows + samples * copy};
    case TableSharding::kColumnWise:
      return {.forward = 2 * rows + samples * parts * copy, .backward = 2 * rows + samples * parts * copy};
    case TableSharding::kRowWise:  // partial sums are added up
      return {.forward = 3 * rows * (parts - 1), .backward = 2 * rows + samples * copy};
    case TableSharding::kReplicated:
      break;
  }
  return {};
}

TableTime time_of_interaction(const Cluster& cluster, double pairs, double dim, double samples) {
  const double all = slower(cluster) * pairs * samples;
  return {.forward = all * (kDot + dim * kDotNumber), .backward = all * (kDotGradient + dim * kDotGradientNumber)};
}

}  // namespace tutti::planning
