// Sparse tensors and gradients are added on GPUs as on the CPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/cuda/training.h"
#include "tutti/tensor/sparse_collectives.h"

namespace tutti::test {
namespace {

at::Tensor sparse_entries(const Group& world, at::ScalarType type, bool in_matrix, bool coalesced) {
  const std::int64_t count = world.rank() == 1 ? 0 : 30;
  const at::Tensor rows = at::randint(7, {count}, at::kLong), columns = at::randint(4, {count}, at::kLong);
  const at::Tensor values = at::randint(-3, 4, {count, 5}, at::kLong).to(type);
  const at::Tensor entries = in_matrix ? at::sparse_coo_tensor(at::stack({rows, columns}), values, {7, 4, 5})
                                       : at::sparse_coo_tensor(at::stack({rows}), values, {7, 5});
  return coalesced ? entries.coalesce() : entries;
}

TEST(TrainingOnGpus, SparseTensorsAreAddedAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        at::manual_seed(20 + world.rank());
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kComplexDouble})
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
            for (const bool in_matrix : {false, true})
              for (const bool coalesced : {false, true}) {
                if (type == at::kBool && op == ReduceOp::kAvg) continue;
                const at::Tensor entries = sparse_entries(world, type, in_matrix, coalesced);
                const at::Tensor sum = all_reduce_sparse(world, entries.to(gpu_of(world)), op);
                const at::Tensor expected = all_reduce_sparse(world, entries, op);
                const std::string what = c10::toString(type) + std::string(in_matrix ? ", two dimensions" : "");
                check(sum.device() == gpu_of(world) && sum.is_coalesced(), what, ": ", sum.device().str());
                check(at::equal(sum._indices().cpu(), expected._indices()), what, ": other indices");
                check(at::equal(sum._values().cpu(), expected._values()), what, ": other values");
              }
      },
      3);
}

// A table of which a step touches a few rows.
class Words : public nn::Module {
 public:
  explicit Words(at::Device device)
      : table(register_module("table", nn::Embedding(nn::EmbeddingOptions(50, 4).sparse(true)))),
        bags(register_module("bags", nn::EmbeddingBag(nn::EmbeddingBagOptions(20, 4).mode(torch::kSum).sparse(true)))),
        head(register_module("head", nn::Linear(4, 3))) {
    to(at::kDouble);
    to(device);
  }
  at::Tensor forward(const at::Tensor& ids) {
    return head->forward(table->forward(ids).sum(1) + bags->forward(ids.remainder(20)));
  }
  nn::Embedding table;
  nn::EmbeddingBag bags;
  nn::Linear head;
};

TEST(TrainingOnGpus, SparseGradientsAreAveragedByRows) {
  expect_in_world(
      [](Group& world) {
        const auto train_on = [&](at::Device device, FiniteCheck finite_check) {
          at::manual_seed(30 + world.rank());
          const auto net = std::make_shared<Words>(device);
          DataParallel ddp(net, world, {.finite_check = finite_check});
          for (int step = 0; step < 3; ++step) {
            const at::Tensor ids = at::randint(50, {6, 3}, at::kLong).to(device);
            ddp.zero_grad();
            ddp.forward(ids).square().mean().backward();
            ddp.finish();
            check(net->table->weight.grad().is_sparse() && net->bags->weight.grad().is_sparse(), "dense gradients");
            const at::NoGradGuard no_grad;
            for (const at::Tensor& weight : net->parameters()) weight.add_(weight.grad(), -0.1);
          }
          return on_cpu(net->parameters());
        };
        for (const FiniteCheck finite_check : {FiniteCheck::kInReduction, FiniteCheck::kReport})
          check_close(train_on(gpu_of(world), finite_check), train_on(kCpu, finite_check), "weights");
      },
      3);
}

}  // namespace
}  // namespace tutti::test
