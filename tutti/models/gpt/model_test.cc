// One process's GPT against the formulas written out with plain tensors: losses, and every gradient.
#include "tutti/models/gpt/model.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tutti/comm/inproc_world.h"
#include "tutti/models/gpt/batches.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti::gpt {
namespace {

Options options_of(const std::function<void(Options&)>& change) {
  Options options;
  auto& shape = options.shape;
  shape.layers = 2;
  shape.hidden = 16;
  shape.heads = shape.groups = 4;
  shape.head_size = 4;
  shape.ffn = 24;
  shape.vocabulary = 11;
  shape.sequence_length = shape.positions = 6;
  options.precision = Precision::kF64;
  options.hidden_dropout = options.attention_dropout = 0;
  options.initial_deviation = 0.3;
  options.batches.micro_batch = 3;
  options.batches.global_batch = 0;  // as many
  change(options);
  return for_world(options, 1).or_throw();
}

using Weights = std::map<std::string, at::Tensor>;

at::Tensor norm(const Options& options, const Weights& weights, const std::string& name, const at::Tensor& x) {
  const double epsilon = options.shape.norm_epsilon;
  const at::Tensor& weight = weights.at(name + ".weight");
  if (options.shape.norm == NormKind::kRmsNorm) return x / at::sqrt((x * x).mean({-1}, true) + epsilon) * weight;
  const at::Tensor centred = x - x.mean({-1}, true);
  return centred / at::sqrt((centred * centred).mean({-1}, true) + epsilon) * weight + weights.at(name + ".bias");
}

at::Tensor linear(const Weights& weights, const std::string& name, const at::Tensor& x) {
  const at::Tensor product = at::matmul(x, weights.at(name + ".weight").t());
  const auto bias = weights.find(name + ".bias");
  return bias == weights.end() ? product : product + bias->second;
}

// x [batch, heads, seq, d]
at::Tensor rotated(const Options& options, const at::Tensor& x) {
  if (options.shape.position != PositionKind::kRotary) return x;
  const std::int64_t d = x.size(-1), half = d / 2;
  const at::Tensor turned = at::empty_like(x);
  for (std::int64_t position = 0; position < x.size(2); ++position)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = double(position) * std::pow(options.shape.rotary_base, -2.0 * double(i) / double(d));
      const auto at_place = [&](const at::Tensor& t, std::int64_t k) { return t.select(2, position).select(2, k); };
      at_place(turned, i).copy_(at_place(x, i) * std::cos(angle) - at_place(x, half + i) * std::sin(angle));
      at_place(turned, half + i).copy_(at_place(x, half + i) * std::cos(angle) + at_place(x, i) * std::sin(angle));
    }
  return turned;
}

at::Tensor attention(const Options& options, const Weights& weights, const std::string& name, const at::Tensor& x) {
  const auto& shape = options.shape;
  const std::int64_t n = x.size(0), s = x.size(1), d = shape.head_size;
  const auto parts = linear(weights, name + "linear_qkv", x)
                         .split_with_sizes({shape.query_size(), shape.key_size(), shape.key_size()}, -1);
  const auto heads = [&](const at::Tensor& part, std::int64_t count) {
    const at::Tensor apart = part.view({n, s, count, d}).transpose(1, 2);
    return count == shape.heads ? apart : apart.repeat_interleave(shape.heads / count, 1);
  };
  const at::Tensor q = rotated(options, heads(parts[0], shape.heads)),
                   k = rotated(options, heads(parts[1], shape.groups));
  const at::Tensor hidden = at::ones({s, s}, at::kBool).triu(1);
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(d))).masked_fill(hidden, -INFINITY);
  const at::Tensor seen = at::matmul(at::softmax(scores, -1), heads(parts[2], shape.groups));
  return linear(weights, name + "linear_proj", seen.transpose(1, 2).reshape({n, s, shape.query_size()}));
}

at::Tensor mlp(const Options& options, const Weights& weights, const std::string& name, const at::Tensor& x) {
  const at::Tensor wide = linear(weights, name + "linear_fc1", x);
  switch (options.shape.activation) {
    case ActivationKind::kSwiglu: {
      const auto halves = wide.chunk(2, -1);
      return linear(weights, name + "linear_fc2", halves[0] * at::sigmoid(halves[0]) * halves[1]);
    }
    case ActivationKind::kSquaredRelu:
      return linear(weights, name + "linear_fc2", at::relu(wide).pow(2));
    case ActivationKind::kGelu:
      break;
  }
  const at::Tensor inner = std::sqrt(2 / M_PI) * (wide + 0.044715 * wide.pow(3));
  return linear(weights, name + "linear_fc2", 0.5 * wide * (1 + at::tanh(inner)));
}

// tokens [seq, batch]
at::Tensor loss_of(const Options& options, const Weights& weights, const MicroBatch& batch) {
  const at::Tensor& words = weights.at("embedding.word_embeddings.weight");
  at::Tensor x = at::embedding(words, batch.tokens.t());
  if (options.shape.position == PositionKind::kLearned) x = x + weights.at("embedding.position_embeddings.weight");
  for (int layer = 0; layer < options.shape.layers; ++layer) {
    const std::string name = "decoder.layers." + std::to_string(layer) + ".";
    x = x + attention(options, weights, name + "self_attention.", norm(options, weights, name + "input_layernorm", x));
    x = x + mlp(options, weights, name + "mlp.", norm(options, weights, name + "pre_mlp_layernorm", x));
  }
  const at::Tensor& head = options.shape.tied ? words : weights.at("output_layer.weight");
  const at::Tensor logits = at::matmul(norm(options, weights, "decoder.final_layernorm", x), head.t());
  const at::Tensor losses = -at::log_softmax(logits, -1).gather(-1, batch.targets.t().unsqueeze(-1)).squeeze(-1);
  return batch.weights.defined() ? (losses * batch.weights.t()).sum() : losses.mean();
}

at::Tensor part_of(at::Tensor whole, const TensorBox& box) {
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    whole = whole.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  return whole;
}

void compare(const std::function<void(Options&)>& change, bool weighted = false) {
  const Options options = options_of(change);
  const auto world = make_inproc_world(1);
  const GridGroups groups = make_grid_groups(world[0], options);
  Model model(groups, options, stages_of_rank(options, 0));
  model.train();
  const auto names = tensors_of(options.shape);
  const auto placed = placed_parameters(model);
  ASSERT_EQ(placed.size(), names.size());
  Weights weights;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    EXPECT_EQ(placed[i].name, names[i].name);
    const at::Tensor copy = at::empty(names[i].shape, at::kDouble);
    for (const auto& [box, piece] : pieces(placed[i].layout, placed[i].tensor.detach()))
      part_of(copy, box).copy_(piece);
    weights[placed[i].name] = copy.requires_grad_();
  }
  MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  if (weighted) batch.weights = at::rand({6, 3}, at::kDouble);
  const at::Tensor loss = model.forward(0, batch, {}), expected = loss_of(options, weights, batch);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  loss.backward();
  expected.backward();
  for (const auto& parameter : placed)
    for (const auto& [box, piece] : pieces(parameter.layout, parameter.tensor.grad()))
      EXPECT_LT((piece - part_of(weights.at(parameter.name).grad(), box)).abs().max().item<double>(), 1e-11)
          << parameter.name;
}

TEST(GptModel, IsGpt2) {
  compare([](Options&) {});
}
TEST(GptModel, OfOtherKinds) {
  compare([](Options& o) {
    o.shape.norm = NormKind::kRmsNorm;
    o.shape.position = PositionKind::kRotary;
    o.shape.activation = ActivationKind::kSwiglu;
    o.shape.groups = 2;
    o.shape.bias = o.shape.tied = false;
  });
  compare([](Options& o) {
    o.shape.activation = ActivationKind::kSquaredRelu;
    o.shape.position = PositionKind::kNone;
  });
}
TEST(GptModel, TokensMayWeighDifferently) {
  compare([](Options&) {}, true);
}
TEST(GptModel, RecomputedLayersHaveTheSameGradients) {
  compare([](Options& o) { o.parallel.recompute = {.method = RecomputeMethod::kUniform, .layers = 1}; });
}

// A document behind another, which it does not see and whose positions it does not count, is as if it stood alone.
TEST(GptModel, DocumentsOfASampleMayBeApart) {
  for (const auto position : {PositionKind::kLearned, PositionKind::kRotary}) {
    const Options options = options_of([&](Options& o) { o.shape.position = position; });
    const auto world = make_inproc_world(1);
    const GridGroups groups = make_grid_groups(world[0], options);
    Model model(groups, options, stages_of_rank(options, 0));
    const auto column = [](std::vector<std::int64_t> values) { return at::tensor(values, at::kLong).unsqueeze(1); };
    const at::Tensor alone = model.logits(0, {.tokens = column({7, 2, 9, 0, 0, 0})}, {});
    MicroBatch second{.tokens = column({4, 1, 10, 7, 2, 9})};
    const at::Tensor seeing = model.logits(0, second, {});
    second.positions = column({0, 1, 2, 0, 1, 2});
    second.first_seen = column({0, 0, 0, 3, 3, 3});
    const at::Tensor apart = model.logits(0, second, {});
    EXPECT_LT((apart.narrow(0, 3, 3) - alone.narrow(0, 0, 3)).abs().max().item<double>(), 1e-13);
    EXPECT_GT((seeing.narrow(0, 3, 3) - alone.narrow(0, 0, 3)).abs().max().item<double>(), 1e-3);
  }
}

class FixedSample : public GptDataset {
 public:
  std::int64_t size() const override { return 3; }
  void read(std::int64_t, std::span<std::int64_t> into) const override {
    const std::int64_t tokens[] = {3, 10, 5, 6, 10, 10, 2};
    std::copy(std::begin(tokens), std::end(tokens), into.begin());
  }
};

TEST(Batches, KnowWhereDocumentsBegin) {
  const Options options = options_of([](Options& o) {
    o.end_of_document = o.masked_token = 10;
    o.reset_positions = o.reset_attention = true;
  });
  const auto world = make_inproc_world(1);
  const GridGroups groups = make_grid_groups(world[0], options);
  const FixedSample data;
  const SequencePart part = context_part(6, 0, 1);
  const MicroBatch batch = Batches(&data, groups, options, SampleOrder::kSequential, part).take(1, 1).front();
  const auto column = [](const at::Tensor& of, int number) {
    const at::Tensor values = of.select(1, number).to(at::kDouble).contiguous();
    return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  };
  EXPECT_EQ(column(batch.tokens, 2), (std::vector<double>{3, 10, 5, 6, 10, 10}));
  EXPECT_EQ(column(batch.first_seen, 2), (std::vector<double>{0, 0, 2, 2, 2, 5})) << "behind each end";
  EXPECT_EQ(column(batch.positions, 2), (std::vector<double>{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(column(batch.weights * 9, 2), (std::vector<double>{1, 0, 1, 1, 0, 0}));
}

// Products in bf16 have f32 weights, whose gradients a zero-bubble schedule can put off like all others.
TEST(GptModel, GradientsOfWeightsArePutOffInBF16) {
  const Options options = options_of([](Options& o) { o.precision = Precision::kBF16; });
  const auto world = make_inproc_world(1);
  const GridGroups groups = make_grid_groups(world[0], options);
  const MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  Model at_once(groups, options, stages_of_rank(options, 0)), later(groups, options, stages_of_rank(options, 0));
  WeightGradients put_off;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    at_once.forward(0, batch, {}).backward();
    const at::Tensor loss = later.forward(0, batch, {});
    const WeightGradients::Scope scope(put_off);
    loss.backward();
  }
  EXPECT_EQ(put_off.size(), 2u * (4 * 2 + 1)) << "four linear layers in each of two, and the logits";
  put_off.run();
  const auto expected = placed_parameters(at_once), found = placed_parameters(later);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor gradient = found[i].tensor.grad();
    EXPECT_EQ(gradient.scalar_type(), at::kFloat) << found[i].name;
    EXPECT_TRUE(at::allclose(gradient, expected[i].tensor.grad(), 1e-6, 1e-7)) << found[i].name;
  }
}

}  // namespace
}  // namespace tutti::gpt
