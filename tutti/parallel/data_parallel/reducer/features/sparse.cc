// Gradients of large tables of which a step touches a few rows: averaged in finish(), one by one, by rows.
#include <ATen/Functions.h>
#include <torch/nn/modules/embedding.h>

#include "tutti/parallel/data_parallel/reducer/features/features.h"
#include "tutti/tensor/sparse_collectives.h"

namespace tutti {
namespace {

// A sparse gradient that touches nothing.
at::Tensor no_rows(const at::Tensor& parameter) {
  return at::_sparse_coo_tensor_with_dims(1, parameter.dim() - 1, parameter.sizes(),
                                          parameter.options().layout(at::kSparse).requires_grad(false));
}

class SparseGradients final : public ReducerFeature {
 public:
  void add_use(const State&, DataParallelUse& use) const override { use.sparse_gradients = true; }

  void on_finish(State& core, Give give) override TUTTI_REQUIRES(core.mutex) {
    std::vector<std::pair<std::size_t, PendingSparse>> sums;
    for (const auto index : core.numbers_of(Route::kSparse)) {
      if (!core.arrivals->takes_part(index)) continue;
      auto& parameter = core.parameters[index];
      const auto mine = give == Give::kZeros ? at::Tensor() : parameter.tensor.grad();
      if (mine.defined()) {
        core.require_layout(parameter, mine);
        if (core.finite.is_on()) core.finite.check_own(index, mine._values());
      }
      sums.emplace_back(index, all_reduce_sparse_async(core.group, mine.defined() ? mine : no_rows(parameter.tensor),
                                                       ReduceOp::kAvg));
    }
    for (const auto& [index, sum] : sums)
      core.parameters[index].reduced = average_of(core, core.parameters[index], sum);
  }

  void end_step(State& core, const std::vector<std::uint8_t>& used, Give give) override TUTTI_REQUIRES(core.mutex) {
    if (give == Give::kGradients) core.write_back(core.numbers_of(Route::kSparse), used);
  }

 private:
  static at::Tensor average_of(State& core, const Parameter& parameter, const PendingSparse& sum) {
    try {
      return sum.get();
    } catch (const Exception& e) {
      if (!core.group.status().ok() || e.error().code != Code::kMismatch) throw;
      core.end_group(
          "of the gradient of " + parameter.name + " rank " + std::to_string(e.error().peer) + " " + e.error().detail,
          "use the same operators on every rank");
    }
  }
};

}  // namespace

std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module) {
  std::vector<std::string> names;
  for (const auto& item : module->named_modules()) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get());
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(item.value().get());
    if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse()))
      names.push_back(item.key().empty() ? "weight" : item.key() + ".weight");
  }
  return names;
}

std::unique_ptr<ReducerFeature> sparse_feature() { return std::make_unique<SparseGradients>(); }

}  // namespace tutti
