// One transformer layer, forward and backward, divided among the ranks that it is started with; each computes with one
// thread, so the tokens a second of `-n 2` over those of `-n 1` are what tensor parallelism gains.
//
//   export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
//   tutti run -n 1 -- tensor_layers_bench              hidden 512, 8 heads, 1,024 tokens
//   tutti run -n 2 -- tensor_layers_bench [sequence]   sequence: with sequence parallelism
//
// Medians: of the slowest rank's steps, and of rank 0's page faults in a step.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

#include <string_view>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

constexpr std::int64_t kHidden = 512, kHeads = 8, kSequence = 512, kBatch = 2;
constexpr int kWarmUp = 5, kSteps = 21;

struct Layer {
  Layer(const Group& group, bool sequence)
      : tp(group),
        qkv(tp, ColumnParallelLinearOptions{.in_features = kHidden,
                                            .out_features = 3 * kHidden,
                                            .blocks = {kHidden, kHidden, kHidden},
                                            .sequence_parallel = sequence,
                                            .initial = InitialWeights::normal(1)}),
        up(tp, ColumnParallelLinearOptions{.in_features = kHidden,
                                           .out_features = 4 * kHidden,
                                           .sequence_parallel = sequence,
                                           .initial = InitialWeights::normal(2)}),
        proj(tp, RowParallelLinearOptions{.in_features = kHidden,
                                          .out_features = kHidden,
                                          .sequence_parallel = sequence,
                                          .initial = InitialWeights::normal(3)}),
        down(tp, RowParallelLinearOptions{.in_features = 4 * kHidden,
                                          .out_features = kHidden,
                                          .sequence_parallel = sequence,
                                          .initial = InitialWeights::normal(4)}) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor norm = at::layer_norm(x, {kHidden});
    const auto parts = qkv(norm).view({kSequence, kBatch, 3, kHeads / tp.size(), kHidden / kHeads}).unbind(2);
    const at::Tensor seen = attention(parts[0], parts[1], parts[2]).reshape({kSequence, kBatch, kHidden / tp.size()});
    const at::Tensor y = x + proj(seen);
    return y + down(at::gelu(up(at::layer_norm(y, {kHidden}))));
  }
  void forget() {
    for (const auto& weights : {qkv->parameters(), up->parameters(), proj->parameters(), down->parameters()})
      for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
  }

  Group tp;
  ColumnParallelLinear qkv, up;
  RowParallelLinear proj, down;
};

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void run(bool sequence) {
  const Group world = init();
  const HeapTensors heap(world);
  prepare_compute(world);
  at::set_num_threads(1);
  Layer layer(world, sequence);
  const std::int64_t rows = sequence ? kSequence / world.size() : kSequence;
  const at::Tensor x = at::randn({rows, kBatch, kHidden}).requires_grad_(), weights = at::randn_like(x.detach());
  std::vector<double> seconds, faulted;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    barrier(world);
    const auto begin = now();
    const long before = faults();
    torch::autograd::backward({layer.forward(x)}, {weights});
    layer.forget();
    x.mutable_grad() = at::Tensor();
    const double mine = seconds_since(begin);
    if (step < kWarmUp) continue;
    seconds.push_back(all_reduce(world, mine, ReduceOp::kMax));
    faulted.push_back(double(faults() - before));
  }
  if (world.rank() != 0) return;
  const double step = median(seconds);
  fmt::print("{} rank{}{}: {:.1f} ms a step, {:.0f} tokens/s, {:.0f} page faults a step\n", world.size(),
             world.size() == 1 ? "" : "s", sequence ? ", sequence parallel" : "", step * 1e3,
             double(kSequence * kBatch) / step, median(faulted));
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { tutti::run(argc > 1 && std::string_view(argv[1]) == "sequence"); }
