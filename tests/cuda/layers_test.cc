// Layers of a transformer on a GPU give what they give on the CPU. The GPU is a real one with TUTTI_REAL_GPUS, else the
// doubles of the CUDA runtime and of LibTorch's device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/cuda/worlds.h"
#include "tests/fakes/cuda/cudart.h"
#include "tests/harness/ranks.h"
#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/dropout_mask.h"
#include "tutti/parallel/tensor/gelu.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/sequence.h"
#include "tutti/parallel/tensor/vocab_embedding.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti::test {
namespace {

using Tensors = std::vector<at::Tensor>;

const at::Device kCpu(at::kCPU);

void expect_in_world(int size, const RankBody& body) {
  EXPECT_EQ(describe(run_processes(size, body, with_gpus(kStaged))), "");
}

// Runs `act` on the CPU and on the GPU, on copies of `inputs`, and backward: results and gradients are the same.
template <class Act>
void check_same(const Group& world, const Tensors& inputs, const std::string& what, const Act& act,
                double tolerance = 1e-12) {
  const auto run = [&](at::Device device) {
    Tensors given;
    for (const at::Tensor& input : inputs) {
      given.push_back(input.detach().clone().to(device));
      if (at::isFloatingType(input.scalar_type())) given.back().requires_grad_();
    }
    const at::Tensor out = act(given);
    check(out.device() == device, what, " is on ", out.device().str());
    const at::Tensor of_out = at::arange(out.numel(), at::kDouble).view(out.sizes()).cos().to(out.options());
    out.backward(of_out);
    Tensors results = {out.detach().cpu()};
    for (const at::Tensor& input : given)
      if (input.requires_grad()) results.push_back(input.grad().cpu());
    return results;
  };
  const Tensors mine = run(at::Device(world.device())), expected = run(kCpu);
  for (std::size_t i = 0; i < mine.size(); ++i)
    check(at::allclose(mine[i], expected[i], tolerance, tolerance), what, i == 0 ? "" : ", gradient ",
          i == 0 ? std::string() : std::to_string(i - 1), ": the greatest difference is ",
          (mine[i] - expected[i]).abs().max().item<double>());
}

TEST(LayersOnGpus, DropoutDropsTheSameElements) {
  expect_in_world(1, [](Group& world) {
    const at::Tensor x = at::randn({40, 3, 70}, at::kFloat);
    for (const SequencePart& part : {SequencePart{{0, 40}}, SequencePart{{7, 25}, {1000, 15}}}) {
      const auto drop = [&](const Tensors& in) { return sequence_dropout(in[0], 0.3, 0xFEDCBA9876543210u, part); };
      check_same(world, {x}, "sequence_dropout", drop, 0);
    }
  });
}

struct AttentionCase {
  const char* name;
  bool causal = true, documents = false;
  double dropout = 0;
  std::int64_t groups = 6;
  at::ScalarType type = at::kDouble;
};

const AttentionCase kAttentionCases[] = {
    {"causal"},
    {"not causal", false},
    {"groups", true, false, 0, 2},
    {"one group", true, false, 0, 1},
    {"documents", true, true},
    {"dropout", true, false, 0.2, 3},
    {"dropout and documents in f32", true, true, 0.2, 2, at::kFloat},
    {"f32", true, false, 0, 6, at::kFloat},
    {"not causal, in f32", false, false, 0, 6, at::kFloat},
    {"bf16", true, false, 0, 6, at::kBFloat16},
    {"groups in bf16", true, false, 0, 2, at::kBFloat16},
};

// Longer than a tile of 128 rows.
void check_attention(const Group& world, const Group& context, std::int64_t whole) {
  constexpr std::int64_t kBatch = 2, kHeads = 6, kDim = 8;
  const SequencePart part = context_part(whole, world.rank(), world.size());
  const std::int64_t rows = rows_of(part);
  for (const AttentionCase& c : kAttentionCases) {
    at::manual_seed(world.rank());
    const auto drawn = [&](std::int64_t heads) {
      return at::randn({rows, kBatch, heads, kDim}, at::kDouble).to(c.type);
    };
    const at::Tensor query = drawn(kHeads), key = drawn(c.groups), value = drawn(c.groups);
    // The second half of the sequence is a document of its own, of the first sample.
    const at::Tensor first = (positions_of(part).ge(whole / 2).to(at::kLong) * (whole / 2)).unsqueeze(1);
    const at::Tensor first_seen = at::cat({first, at::zeros_like(first)}, 1);
    const double tolerance = c.type == at::kDouble ? 1e-11 : c.type == at::kFloat ? 1e-4 : 2e-2;
    check_same(
        world, {query, key, value}, c.name,
        [&](const Tensors& in) {
          AttentionOptions options{.causal = c.causal, .dropout = c.dropout, .dropout_seed = 99, .first_head = 3};
          if (c.documents) options.first_seen = first_seen.to(in[0].device());
          return ring_attention(context, in[0], in[1], in[2], options);
        },
        tolerance);
  }
}

TEST(LayersOnGpus, AttentionEqualsTheCpu) {
  expect_in_world(1, [](Group& world) { check_attention(world, Group{}, 300); });
}

TEST(LayersOnGpus, RingAttentionEqualsTheCpu) {
  expect_in_world(2, [](Group& world) { check_attention(world, world, 320); });
}

TEST(LayersOnGpus, CrossEntropyOverTheRanksEqualsTheCpu) {
  expect_in_world(2, [](Group& world) {
    at::manual_seed(5);
    const at::Tensor all = at::randn({9, 3, 26}, at::kDouble) * 3, targets = at::randint(25, {9, 3}, at::kLong);
    const at::Tensor mine = all.narrow(2, 13 * world.rank(), 13).contiguous();
    for (const double smoothing : {0.0, 0.1})
      check_same(world, {mine, targets}, "cross entropy", [&](const Tensors& in) {
        return vocab_parallel_cross_entropy(world, in[0], in[1], {.words = 25, .label_smoothing = smoothing});
      });
  });
}

TEST(LayersOnGpus, EmbeddingsOfADividedVocabularyEqualTheCpu) {
  expect_in_world(2, [](Group& world) {
    const at::Tensor ids = at::arange(24, at::kLong).remainder(11).view({8, 3});
    for (const Group& group : {world, Group{}})
      for (const bool sequence_parallel : {false, true}) {
        VocabParallelEmbedding layer(group, VocabParallelEmbeddingOptions{.words = 11,
                                                                          .columns = 4,
                                                                          .divisible = 1,
                                                                          .sequence_parallel = sequence_parallel,
                                                                          .dtype = at::kDouble});
        const at::Tensor weight = layer->weight.detach().clone();
        check_same(world, {weight, ids}, "VocabParallelEmbedding", [&](const Tensors& in) {
          layer->weight = in[0];
          return layer->forward(in[1]);
        });
      }
  });
}

// The host does not wait to find them.
TEST(LayersOnGpus, IdsOutsideTheVocabularyGiveNaN) {
  expect_in_world(2, [](Group& world) {
    const at::Device device(world.device());
    const at::Tensor ids = at::tensor({3, 11, -1, 10}, at::kLong);
    const at::Tensor expected = at::tensor({0, 1, 1, 0}, at::kLong).to(at::kBool);
    VocabParallelEmbedding layer(world, VocabParallelEmbeddingOptions{.words = 11, .columns = 4, .divisible = 1});
    layer->to(device);
    const at::Tensor rows = layer->forward(ids.to(device));
    check(at::equal(rows.isnan().all(1).cpu(), expected) && at::equal(rows.isnan().any(1).cpu(), expected), "rows");

    const at::Tensor logits = at::randn({4, 6}).to(device).requires_grad_();
    const at::Tensor losses = vocab_parallel_cross_entropy(world, logits, ids.to(device), {.words = 11});
    check(at::equal(losses.isnan().cpu(), expected), "losses");
    losses.sum().backward();
    check(at::equal(logits.grad().isnan().any(1).cpu(), expected), "gradients");
  });
}

TEST(LayersOnGpus, TheHostDoesNotWaitInLayersOfADividedVocabulary) {
  expect_in_world(2, [](Group& world) {
    const at::Device device(world.device());
    VocabParallelEmbedding layer(world, VocabParallelEmbeddingOptions{.words = 11, .columns = 6, .divisible = 1});
    layer->to(device);
    const at::Tensor ids = at::arange(8, at::kLong).to(device);
    const std::uint64_t before = host_waits_for(device.index());
    vocab_parallel_cross_entropy(world, layer->forward(ids), ids, {.words = 11}).sum().backward();
    const std::uint64_t waits = host_waits_for(device.index()) - before;
    check(waits == 0, "the host waits ", waits, " times");
  });
}

// Autograd runs these nodes on a thread of the device.
TEST(LayersOnGpus, GradientsOfWeightsAreDeferred) {
  expect_in_world(1, [](Group& world) {
    const at::Device device(world.device());
    const at::Tensor weight = at::randn({3, 4}, at::kDouble).to(device).requires_grad_();
    const at::Tensor x = at::randn({2, 4}, at::kDouble).to(device).requires_grad_();
    const auto backward = [&] { column_parallel_linear(Group{}, x, weight, {}, false).square().sum().backward(); };
    backward();
    const at::Tensor expected = weight.grad().clone();
    weight.mutable_grad() = at::Tensor();
    WeightGradients later;
    {
      const WeightGradients::Scope scope(later);
      backward();
    }
    check(later.size() == 1 && !weight.grad().defined(), "a gradient was not deferred");
    later.run();
    check(at::allclose(weight.grad(), expected), "the gradient differs");
  });
}

TEST(LayersOnGpus, GeluEqualsTheCpu) {
  expect_in_world(1, [](Group& world) {
    const at::Tensor x = at::randn({100, 7}, at::kDouble) * 4;
    check_same(
        world, {x}, "gelu_tanh", [](const Tensors& in) { return gelu_tanh(in[0]); }, 1e-9);
  });
}

}  // namespace
}  // namespace tutti::test
