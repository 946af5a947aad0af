// `tutti run` and init() check OpenBLAS's choice of kernels. This file has the checks that need LibTorch.
//
// A rank's share of the cores cannot be read off its own affinity mask. Without binding, the mask is the machine's (or
// the container's) and all ranks share it. With binding by mpirun or srun, it is the rank's alone. One rank cannot
// distinguish the two, so the ranks exchange their masks.
#include "tutti/tensor/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tutti/base/env.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

std::atomic<int> fixed_threads{0};  // 0: not fixed
std::atomic<bool> prepared{false};

void warn_of_reference_blas() {
  if (at::hasMKL() || ::dlsym(RTLD_DEFAULT, "openblas_get_corename") != nullptr) return;
  log::warn("LibTorch runs on the reference BLAS, 13 to 60 times slower than OpenBLAS: install libopenblas0-pthread");
}

}  // namespace

int cores_of_rank(const Group& group) {
  const auto allowed = allowed_cores();
  const int share = share_of_cores(group, allowed), usable = usable_cores();
  const int node = group.node();
  std::vector<int> nodes(std::size_t(group.size()));
  all_gather(group, std::span<const int>(&node, 1), std::span(nodes));
  if (usable >= count_of(allowed)) return share;
  return std::clamp(usable / int(std::count(nodes.begin(), nodes.end(), node)), 1,
                    share);  // a quota, which the ranks of a host share
}

int share_of_cores(const Group& group, const CoreMask& mine) {
  const auto words = std::size_t(all_reduce(group, std::int64_t(mine.size()), ReduceOp::kMax));
  const std::size_t length = 1 + words;  // the host, then the mask
  std::vector<std::int64_t> sent(length, 0), all(length * std::size_t(group.size()));
  sent[0] = group.node();
  std::copy(mine.begin(), mine.end(), sent.begin() + 1);
  all_gather(group, std::span<const std::int64_t>(sent), std::span(all));
  double share = 0;
  for (std::size_t core = 0; core < mine.size() * 64; ++core) {
    const auto has = [&](const std::int64_t* rank) { return std::uint64_t(rank[1 + core / 64]) >> (core % 64) & 1; };
    if (!has(sent.data())) continue;
    int ranks = 0;
    for (auto* rank = all.data(); rank < all.data() + all.size(); rank += length)
      ranks += rank[0] == sent[0] && has(rank);
    share += 1.0 / ranks;
  }
  return std::max(1, int(share + 1e-6));
}

int prepare_compute(const Group& group) {
  at::globalContext().setFlushDenormal(true);  // a register of this thread
  const int cores = cores_of_rank(group);
  prepared = true;
  static std::once_flag once;
  std::call_once(once, [&] {
    if (!env("OMP_NUM_THREADS") && !fixed_compute_threads()) at::set_num_threads(cores);
    if (group.local_rank() == 0) warn_of_reference_blas();
  });
  return cores;
}

bool is_compute_prepared() { return prepared; }

Compute::Compute(const Group& group, ComputeOptions options) : cores_(prepare_compute(group)) {
  if (options.heap_tensors) heap_ = std::make_unique<HeapTensors>(group);
}
Compute::~Compute() = default;

// at::set_num_threads() sets the threads of OpenMP and MKL. OpenBLAS with threads of its own has a number of its own.
void fix_compute_threads(int threads) {
  TUTTI_REQUIRE(threads > 0, "fix_compute_threads: ", threads, " threads; expected 1 or more");
  fixed_threads = threads;
  at::set_num_threads(threads);
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(threads);
}

std::optional<int> fixed_compute_threads() {
  const int threads = fixed_threads;
  return threads > 0 ? std::optional(threads) : std::nullopt;
}

const char* torch_version() { return TORCH_VERSION; }

}  // namespace tutti
