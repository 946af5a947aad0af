#pragma once
// Measures the hosts of a job as the planner of trainings wants them: what a rank computes, and what the links between
// ranks carry. CPUs only.
#include <functional>
#include <string>
#include <vector>

#include "bench/machine/products.h"
#include "tutti/comm/group.h"
#include "tutti/planning/training/cluster.h"

namespace tutti::bench {

// A linear layer: rows, outputs, inputs.
struct ProductShape {
  int m, n, k;
  bool operator==(const ProductShape&) const = default;
};
// Rows, outputs and inputs of 64 to 4096, in steps of 4, as far as a product has no more than 2^32 operations.
std::vector<ProductShape> usual_shapes();

struct MachineMeasure {
  Cluster cluster;
  // What the figures come from: libraries, hosts, and a check of all_reduce against the figures.
  std::vector<std::string> comments;
};

// Collective; takes about 10 s a round. Each product is timed on rank 0 while the other ranks wait, and, if rank 0
// shares its host, on all ranks at once, of which the slowest counts. Links: messages of the first two ranks of a host,
// and of the first rank of host 0 with that of each other host, of which the slowest counts. The bandwidth inside a
// host is that of its all_reduce. `say` is called on rank 0 before each part. Products are timed in `rounds`, one after
// another, of which the fastest counts: another program that disturbs one of them seldom disturbs them all. All ranks
// return the same. kNotFound: a rank has no BLAS.
Result<MachineMeasure> measure_machine(const Group& world, const std::vector<ProductShape>& shapes,
                                       const std::function<void(const std::string&)>& say, int rounds = 1);

}  // namespace tutti::bench
