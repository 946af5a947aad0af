#pragma once
// How long a rank of a CPU takes for its parts of embedding tables, and for the dot interaction of their pooled rows,
// in closed form: the loops of tutti/embedding and tutti/models/dlrm/interaction.cc. Bytes alone do not determine it.
// Each lookup is sorted, however short its row; rows that a cache holds are read many times faster than others; and
// rows at random places are read more slowly than a stream of bytes.
#include "tutti/planning/tables/planner.h"
#include "tutti/planning/training/cluster.h"

namespace tutti::planning {

// Seconds of a batch.
struct TableTime {
  double forward = 0;   // rows are picked and pooled
  double backward = 0;  // lookups are sorted, gradients summed by row, rows updated
};

// On the rank that has the part. `options`: ranks, batch, and the numbers of a row.
TableTime time_of_part(const Cluster& cluster, const TableSpec& table, TableSharding sharding, const TableShard& shard,
                       const PlannerOptions& options);
// On each rank, for its samples: rows of tables that are cut are put together; gradients are copied where owners read
// them.
TableTime time_of_reader(const Cluster& cluster, const TableSpec& table, const TablePlacement::Table& placed,
                         const PlannerOptions& options);
// Of a rank's `samples`: the products of `pairs` pairs of vectors of `dim` numbers, and their gradients.
TableTime time_of_interaction(const Cluster& cluster, double pairs, double dim, double samples);
// Lookups of a batch on the rank that has the part.
double lookups_of_part(const TableSpec& table, TableSharding sharding, const TableShard& shard,
                       const PlannerOptions& options);

}  // namespace tutti::planning
