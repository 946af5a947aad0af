#pragma once
// The options and the statistics of DataParallel.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"

namespace tutti {

class CommHook;

enum class Overlap {
  kAuto,  // kOn between hosts, on GPUs, and where this rank's share of the cores is more than its compute threads; else
          // kOff
  kOn,    // start a bucket's all_reduce as soon as its gradients are there; the engine thread drives it
  kOff,   // in finish(), on the calling thread
};

// What becomes of a NaN or an infinity in a gradient of any rank. All ranks decide alike.
enum class FiniteCheck {
  kOff,
  // finish(), or the step() of a sharded optimizer, throws an Exception that names parameter, rank and step; the group
  // still works: call zero_grad() and train on. Averages are checked while they are made, at next to no cost; a single
  // rank averages nothing and is not checked. Two limits. Where the ranks' own gradients are gone by then (large ones
  // that are reduced during backward(), or over links) the rank is not known. And a step() that averages and steps in
  // one pass (stage 1 on one host, without clipping) has stepped what was finite, on all ranks alike.
  kInReduction,
  // kReport and kThrow check each rank's own gradients in an extra pass, before any is averaged.
  kReport,  // finish() returns, and non_finite() reports; optimizers of this library leave the weights alone
  kThrow,   // finish() throws as above, and the weights are as they were
};

constexpr double mebibytes(std::size_t bytes) { return double(bytes) / (1 << 20); }

// Options that PyTorch's DistributedDataParallel has carry its names. Every rank gives the same, or the constructor
// throws on all of them.
struct DataParallelOptions {
  std::size_t first_bucket_bytes = std::size_t(1) << 20;  // small, so that the first all_reduce starts early
  // Size of the other buckets in MiB, exact to a byte: mebibytes(4096) is a bucket of 4 KiB.
  double bucket_cap_mb = 25;
  // Gradients from this size on are reduced in place, smaller ones packed.
  std::size_t in_place_bytes = std::size_t(256) << 10;
  Overlap overlap = Overlap::kAuto;
  bool broadcast_buffers = true;  // before each forward() of a module that trains
  // A parameter without a gradient counts as zero. A parameter that no rank used keeps its gradient: none after
  // zero_grad(), but zeros with `gradient_as_bucket_view`, which an optimizer takes for a gradient (momentum and weight
  // decay go on).
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;  // .grad is a view into a bucket; costs a zero and an addition

  // Every step uses the same parameters, equally often, on every rank. The first step is observed: a parameter that it
  // does not use is never waited for again (and has no gradient), and a parameter that several nested backward() calls
  // use (activation checkpointing) is ready after the last of them.
  bool static_graph = false;
  // Names of parameters and buffers that stay local to this rank: not compared, broadcast or averaged.
  std::vector<std::string> params_and_buffers_to_ignore{};
  // Names of parameters that finish() skips: their gradients accumulate until average_delayed().
  std::vector<std::string> delay_all_reduce_named_params{};
  // Names of parameters whose gradients are sparse. Those of torch::nn::Embedding and EmbeddingBag made with
  // sparse(true) need not be listed.
  std::vector<std::string> sparse{};
  // Takes the place of the all_reduce. An object of its own for each DataParallel of each rank.
  std::shared_ptr<CommHook> hook{};
  FiniteCheck finite_check = FiniteCheck::kInReduction;
  // kBF16, kF16: forward() runs under Autocast (mixed_precision.h); parameters and gradients stay what they are.
  std::optional<DType> autocast{};
  // Compute as so many ranks would, however many processes carry them: 1, 2, 4, ... processes that divide the number
  // give the same bits. Each step, for each of DataParallel::logical_ranks() in turn: begin_logical_rank(), forward(),
  // backward(); then finish() once. 0: a process is a rank. What each computes must not depend on the process: seed by
  // logical rank (seed_all()). LibTorch and its BLAS compute with one thread in each process, or with the number that
  // use_deterministic() fixed before.
  int logical_ranks = 0;
  // Let forward() take a batch of no samples. A mean over none is NaN, which the average would spread to every rank.
  bool allow_empty_batches = false;
};

// The first gradient that was not finite: of the lowest parameter, then of the lowest rank.
struct NonFiniteGradient {
  std::string parameter;
  int rank = 0;  // -1: every rank's was finite, their average is not; -2: the average is not, the rank is not known
};

struct DataParallelStats {
  std::size_t steps = 0;       // finished, with communication
  double exposed_seconds = 0;  // in finish(), of all steps: communication that computing did not hide
  double last_exposed_seconds = 0;
  std::size_t bytes_per_step = 0;
  bool overlapped = false;
  bool rebuilt = false;                              // the buckets are in the order in which gradients came
  std::vector<std::vector<std::string>> buckets;     // names of parameters, in the order of launch
  std::vector<std::string> sparse, delayed, unused;  // apart from them; unused: of a static graph
};

}  // namespace tutti
