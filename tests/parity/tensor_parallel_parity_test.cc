// A small transformer with every layer of parallel/tensor (embedding, fused queries, keys and values of grouped heads,
// ring attention, gated feed-forward, tied output, cross entropy with smoothing, dropout throughout) on tp x cp ranks,
// with and without sequence parallelism, equals one process in f64: the loss, and every element of every gradient. What
// one process computes, tests beside the layers hold against LibTorch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/random.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/partial_gradients.h"
#include "tutti/parallel/tensor/sequence.h"
#include "tutti/parallel/tensor/vocab_embedding.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti {
namespace {

using tutti::test::check;

constexpr std::int64_t kSequence = 16, kBatch = 2, kHidden = 12, kHeads = 8, kGroups = 4, kHeadSize = 3, kInner = 16,
                       kWords = 37, kDivisible = 4;
constexpr std::uint64_t kSeed = 1234;

struct Place {
  Group tensor, context;  // Group{}: one process
  bool sequence_parallel = false;
};

struct NormImpl : torch::nn::Module, TensorParallelModule {
  explicit NormImpl(bool sequence_parallel) : partial(sequence_parallel) {
    weight = register_parameter("weight", at::ones({kHidden}, at::kDouble));
    bias = register_parameter("bias", at::zeros({kHidden}, at::kDouble));
  }
  ParameterLayout layout_of(std::string_view) const override {
    return ParameterLayout::whole({std::uint64_t(kHidden)}, partial);
  }
  at::Tensor forward(const at::Tensor& x) { return at::layer_norm(x, {kHidden}, weight, bias); }
  bool partial;
  at::Tensor weight, bias;
};
TORCH_MODULE(Norm);

InitialWeights weights(int parameter) { return InitialWeights::normal(seed_at(kSeed, {.layer = parameter}), 0.3); }

struct Transformer : torch::nn::Module {
  explicit Transformer(const Place& where)
      : place(where),
        share(head_share(kHeads, kGroups, ranks_of(where.tensor))),
        norm1(where.sequence_parallel),
        norm2(where.sequence_parallel),
        norm3(where.sequence_parallel) {
    const std::int64_t q = kHeads * kHeadSize, kv = kGroups * kHeadSize;
    const bool sp = place.sequence_parallel;
    words = VocabParallelEmbedding(place.tensor, VocabParallelEmbeddingOptions{.words = kWords,
                                                                               .columns = kHidden,
                                                                               .divisible = kDivisible,
                                                                               .sequence_parallel = sp,
                                                                               .initial = weights(1),
                                                                               .dtype = at::kDouble});
    qkv = ColumnParallelLinear(place.tensor, ColumnParallelLinearOptions{.in_features = kHidden,
                                                                         .out_features = q + 2 * kv,
                                                                         .blocks = {q, kv, kv},
                                                                         .sequence_parallel = sp,
                                                                         .initial = weights(2),
                                                                         .dtype = at::kDouble});
    proj = RowParallelLinear(place.tensor, RowParallelLinearOptions{.in_features = q,
                                                                    .out_features = kHidden,
                                                                    .sequence_parallel = sp,
                                                                    .initial = weights(3),
                                                                    .dtype = at::kDouble});
    up = ColumnParallelLinear(place.tensor, ColumnParallelLinearOptions{.in_features = kHidden,
                                                                        .out_features = 2 * kInner,
                                                                        .blocks = {kInner, kInner},
                                                                        .sequence_parallel = sp,
                                                                        .initial = weights(4),
                                                                        .dtype = at::kDouble});
    down = RowParallelLinear(place.tensor, RowParallelLinearOptions{.in_features = kInner,
                                                                    .out_features = kHidden,
                                                                    .sequence_parallel = sp,
                                                                    .initial = weights(5),
                                                                    .dtype = at::kDouble});
    register_module("words", words), register_module("norm1", norm1), register_module("qkv", qkv);
    register_module("proj", proj), register_module("norm2", norm2), register_module("up", up);
    register_module("down", down), register_module("norm3", norm3);
  }

  at::Tensor attend(const at::Tensor& x) {
    const at::Tensor all = qkv(x);
    const std::int64_t rows = all.size(0), dim = kHeadSize;
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return all.narrow(-1, first * dim, count * dim).reshape({rows, kBatch, count, dim});
    };
    const at::Tensor out =
        ring_attention(place.context, heads(0, share.heads), heads(share.heads, share.groups),
                       heads(share.heads + share.groups, share.groups),
                       {.dropout = 0.2, .dropout_seed = 5, .first_head = rank_in(place.tensor) * share.heads});
    return proj(out.reshape({rows, kBatch, share.heads * dim}));
  }
  at::Tensor feed(const at::Tensor& x) {
    const auto halves = up(x).chunk(2, -1);
    return down(at::silu(halves[0]) * halves[1]);
  }

  // This rank's share of the mean over all tokens of the sequence: [seq of this rank, batch] both.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets) {
    SequencePart part = context_part(kSequence, rank_in(place.context), ranks_of(place.context));
    if (place.sequence_parallel) part = tensor_part(part, rank_in(place.tensor), ranks_of(place.tensor));
    const auto drop = [&](const at::Tensor& x, std::uint64_t seed) { return sequence_dropout(x, 0.1, seed, part); };
    at::Tensor x = drop(words(ids), 1);
    x = x + drop(attend(norm1(x)), 2);
    x = x + drop(feed(norm2(x)), 3);
    const at::Tensor logits =
        column_parallel_linear(place.tensor, norm3(x), words->weight, {}, place.sequence_parallel);
    return vocab_parallel_cross_entropy(place.tensor, logits, targets,
                                        {.words = kWords, .label_smoothing = 0.1, .overwrite_logits = true})
               .sum() /
           double(kSequence * kBatch);
  }

  Place place;
  HeadShare share;
  VocabParallelEmbedding words{nullptr};
  ColumnParallelLinear qkv{nullptr}, up{nullptr};
  RowParallelLinear proj{nullptr}, down{nullptr};
  Norm norm1, norm2, norm3;
};

struct Step {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;  // padded as the parameters
};

// Forward and backward, to the end of the step: what is partial is added up, over the tensor group and over `context`.
Step step_of(Transformer& model, bool put_off) {
  const Place& place = model.place;
  const at::Tensor all = (at::arange(kSequence * kBatch, at::kLong) * 11).remainder(kWords).view({kSequence, kBatch});
  const SequencePart part = context_part(kSequence, rank_in(place.context), ranks_of(place.context));
  const at::Tensor ids = take_part(all, part), targets = take_part((all * 5 + 3).remainder(kWords), part);
  const at::Tensor loss = model.loss(ids, targets);
  WeightGradients later;
  {
    std::unique_ptr<WeightGradients::Scope> scope;
    if (put_off) scope = std::make_unique<WeightGradients::Scope>(later);
    torch::autograd::backward({loss}, {});
  }
  check(later.size() == (put_off ? 5u : 0u), "put off: ", later.size());
  later.run();
  const auto parameters = placed_parameters(model);
  sum_over_tensor_group(place.tensor, with_partial_gradients(parameters));
  Step step;
  const at::Tensor whole_loss = loss.detach().clone();
  if (ranks_of(place.context) > 1) all_reduce(place.context, whole_loss);
  step.loss = whole_loss.item<double>();
  for (const PlacedParameter& parameter : parameters) {
    const at::Tensor gradient = parameter.tensor.grad().clone();
    if (ranks_of(place.context) > 1) all_reduce(place.context, gradient);
    step.gradients[parameter.name] = gradient;
  }
  return step;
}

at::Tensor box_of(const at::Tensor& whole, const TensorBox& box) {
  at::Tensor part = whole;
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    part = part.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  return part;
}

struct Case {
  int tensor, context;
  bool sequence_parallel, put_off;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "tp" << c.tensor << "_cp" << c.context << (c.sequence_parallel ? "_sp" : "") << (c.put_off ? "_late" : "");
}

class TensorParallel : public testing::TestWithParam<Case> {};

TEST_P(TensorParallel, EqualsOneProcess) {
  const Case c = GetParam();
  Transformer reference(Place{});
  const Step wanted = step_of(reference, false);
  ASSERT_GT(wanted.loss, 3);
  ASSERT_EQ(wanted.gradients.size(), 15u);
  const auto outcomes = test::run_threads(c.tensor * c.context, [&](Group& world) {
    const auto groups = split(world, Mesh({{"cp", c.context}, {"tp", c.tensor}})).or_throw();
    Transformer model(Place{groups.along("tp"), groups.along("cp"), c.sequence_parallel});
    const Step got = step_of(model, c.put_off);
    check(std::abs(got.loss - wanted.loss) < 1e-12, "loss ", got.loss, " instead of ", wanted.loss);
    for (const PlacedParameter& parameter : placed_parameters(model)) {
      const at::Tensor& gradient = got.gradients.at(parameter.name);
      std::int64_t seen = 0;
      for (const auto& [box, part] : pieces(parameter.layout, gradient)) {
        const at::Tensor whole = box_of(wanted.gradients.at(parameter.name), box);
        const double apart = (part - whole).abs().max().item<double>();
        check(apart < 1e-10, "gradient of ", parameter.name, " ", box_text(box), ": ", apart);
        seen += part.numel();
      }
      if (seen < gradient.numel())  // padding
        check(gradient.flatten().narrow(0, seen, gradient.numel() - seen).abs().max().item<double>() == 0,
              "gradient of padding");
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallel,
                         testing::Values(Case{1, 1, false, false}, Case{2, 1, false, false}, Case{4, 1, false, false},
                                         Case{1, 2, false, false}, Case{2, 2, false, false}, Case{4, 2, false, false},
                                         Case{1, 4, false, false}, Case{2, 4, false, false}, Case{4, 4, false, false},
                                         Case{1, 1, true, false}, Case{2, 1, true, false}, Case{4, 1, true, false},
                                         Case{2, 2, true, false}, Case{4, 2, true, false}, Case{2, 4, true, false},
                                         Case{4, 4, true, false}, Case{1, 1, false, true}, Case{2, 1, false, true},
                                         Case{4, 2, true, true}),
                         testing::PrintToStringParamName());

// Saved by four ranks, one process finds the weights that it would have drawn; and the other way round.
TEST(TensorParallelCheckpoint, OfAnyNumberOfRanksIsReadByAnyOther) {
  test::TemporaryFolder folder;
  Transformer reference(Place{});
  const auto drawn = placed_parameters(reference);
  const auto clear = [](const std::vector<PlacedParameter>& parameters) {
    const at::NoGradGuard no_grad;
    for (const PlacedParameter& parameter : parameters) parameter.tensor.fill_(7);
  };
  const auto save = [&](Group& tp) {
    Transformer model(Place{tp, Group{}, false});
    StateDict state(StateUse::kSave);
    state.add("model", placed_parameters(model));
    save_checkpoint(tp, folder.path(), state).or_throw();
  };
  EXPECT_EQ(test::describe(test::run_threads(4, save)), "");
  for (const int ranks : {1, 2}) {
    const auto load = [&](Group& tp) {
      Transformer model(Place{tp, Group{}, false});
      const auto parameters = placed_parameters(model);
      clear(parameters);
      StateDict state(StateUse::kLoad);
      state.add("model", parameters);
      state.load(tp, CheckpointReader::open(folder.path()).or_throw()).or_throw();
      for (std::size_t i = 0; i < parameters.size(); ++i)
        for (const auto& [box, part] : pieces(parameters[i].layout, parameters[i].tensor.detach()))
          check(at::equal(part, box_of(drawn[i].tensor.detach(), box)), parameters[i].name);
    };
    EXPECT_EQ(test::describe(test::run_threads(ranks, load)), "");
  }
}

}  // namespace
}  // namespace tutti
