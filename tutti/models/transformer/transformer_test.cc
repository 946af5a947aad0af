// One process's transformer against the formulas written out with plain tensors: losses, and every gradient.
#include "tutti/models/transformer/transformer.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tests/harness/ranks.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti {
namespace {

TransformerConfig config_of(const std::function<void(TransformerConfig&)>& change) {
  TransformerConfig config{.layers = 2, .hidden = 16, .heads = 4, .ffn = 24, .vocabulary = 11, .sequence_length = 6};
  config.precision = Precision::kF64;
  config.initial_deviation = 0.3;
  change(config);
  return with_defaults(config);
}

using Weights = std::map<std::string, at::Tensor>;

at::Tensor norm(const TransformerConfig& config, const Weights& weights, const std::string& name, const at::Tensor& x) {
  const double epsilon = config.norm_epsilon;
  const at::Tensor& weight = weights.at(name + ".weight");
  if (config.norm == NormKind::kRmsNorm) return x / at::sqrt((x * x).mean({-1}, true) + epsilon) * weight;
  const at::Tensor centred = x - x.mean({-1}, true);
  return centred / at::sqrt((centred * centred).mean({-1}, true) + epsilon) * weight + weights.at(name + ".bias");
}

at::Tensor linear(const Weights& weights, const std::string& name, const at::Tensor& x) {
  const at::Tensor product = at::matmul(x, weights.at(name + ".weight").t());
  const auto bias = weights.find(name + ".bias");
  return bias == weights.end() ? product : product + bias->second;
}

// x [batch, heads, seq, d]
at::Tensor rotated(const TransformerConfig& config, const at::Tensor& x) {
  if (config.position != PositionKind::kRotary) return x;
  const std::int64_t d = x.size(-1), half = d / 2;
  const at::Tensor turned = at::empty_like(x);
  for (std::int64_t position = 0; position < x.size(2); ++position)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = double(position) * std::pow(config.rotary_base, -2.0 * double(i) / double(d));
      const auto at_place = [&](const at::Tensor& t, std::int64_t k) { return t.select(2, position).select(2, k); };
      at_place(turned, i).copy_(at_place(x, i) * std::cos(angle) - at_place(x, half + i) * std::sin(angle));
      at_place(turned, half + i).copy_(at_place(x, half + i) * std::cos(angle) + at_place(x, i) * std::sin(angle));
    }
  return turned;
}

at::Tensor attention(const TransformerConfig& config, const Weights& weights, const std::string& name,
                     const at::Tensor& x) {
  const std::int64_t n = x.size(0), s = x.size(1), d = config.head_size;
  const auto parts = linear(weights, name + "linear_qkv", x)
                         .split_with_sizes({config.query_size(), config.key_size(), config.key_size()}, -1);
  const auto heads = [&](const at::Tensor& part, std::int64_t count) {
    const at::Tensor apart = part.view({n, s, count, d}).transpose(1, 2);
    return count == config.heads ? apart : apart.repeat_interleave(config.heads / count, 1);
  };
  const at::Tensor q = rotated(config, heads(parts[0], config.heads)),
                   k = rotated(config, heads(parts[1], config.query_groups));
  const at::Tensor hidden = at::ones({s, s}, at::kBool).triu(1);
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(d))).masked_fill(hidden, -INFINITY);
  const at::Tensor seen = at::matmul(at::softmax(scores, -1), heads(parts[2], config.query_groups));
  return linear(weights, name + "linear_proj", seen.transpose(1, 2).reshape({n, s, config.query_size()}));
}

at::Tensor mlp(const TransformerConfig& config, const Weights& weights, const std::string& name, const at::Tensor& x) {
  const at::Tensor wide = linear(weights, name + "linear_fc1", x);
  switch (config.activation) {
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

// One layer, x [batch, seq, hidden]; `name`: "decoder.layers.0."
using LayerFormula = at::Tensor (*)(const TransformerConfig&, const Weights&, const std::string& name, at::Tensor x);

at::Tensor pre_norm_layer(const TransformerConfig& config, const Weights& weights, const std::string& name,
                          at::Tensor x) {
  x = x + attention(config, weights, name + "self_attention.", norm(config, weights, name + "input_layernorm", x));
  return x + mlp(config, weights, name + "mlp.", norm(config, weights, name + "pre_mlp_layernorm", x));
}

// tokens [seq, batch]
at::Tensor loss_of(const TransformerConfig& config, const Weights& weights, const MicroBatch& batch,
                   LayerFormula layer) {
  const at::Tensor& words = weights.at("embedding.word_embeddings.weight");
  at::Tensor x = at::embedding(words, batch.tokens.t());
  if (config.position == PositionKind::kLearned) x = x + weights.at("embedding.position_embeddings.weight");
  for (int number = 0; number < config.layers; ++number)
    x = layer(config, weights, "decoder.layers." + std::to_string(number) + ".", x);
  const at::Tensor& head = config.tied ? words : weights.at("output_layer.weight");
  const at::Tensor logits = at::matmul(norm(config, weights, "decoder.final_layernorm", x), head.t());
  const at::Tensor losses = -at::log_softmax(logits, -1).gather(-1, batch.targets.t().unsqueeze(-1)).squeeze(-1);
  return batch.weights.defined() ? (losses * batch.weights.t()).sum() : losses.mean();
}

at::Tensor part_of(at::Tensor whole, const TensorBox& box) {
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    whole = whole.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  return whole;
}

// The whole parameters of a model, which is not divided.
Weights weights_of(const Transformer& model) {
  Weights weights;
  for (const auto& parameter : placed_parameters(model)) {
    const auto& shape = parameter.layout.shape;
    const at::Tensor copy = at::empty(std::vector<std::int64_t>(shape.begin(), shape.end()), at::kDouble);
    for (const auto& [box, piece] : pieces(parameter.layout, parameter.tensor.detach()))
      part_of(copy, box).copy_(piece);
    weights[parameter.name] = copy.requires_grad_();
  }
  return weights;
}

// The loss and every gradient of a model against the formulas.
void compare(Transformer& model, const MicroBatch& batch, LayerFormula layer) {
  model.train();
  const Weights weights = weights_of(model);
  const at::Tensor loss = model.forward(batch), expected = loss_of(model.config(), weights, batch, layer);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  loss.backward();
  expected.backward();
  for (const auto& parameter : placed_parameters(model))
    for (const auto& [box, piece] : pieces(parameter.layout, parameter.tensor.grad()))
      EXPECT_LT((piece - part_of(weights.at(parameter.name).grad(), box)).abs().max().item<double>(), 1e-11)
          << parameter.name;
}

void compare(const std::function<void(TransformerConfig&)>& change, bool weighted = false,
             TransformerOptions options = {}) {
  const TransformerConfig config = config_of(change);
  Transformer model(config, {}, std::move(options));
  const auto names = tensors_of(config);
  const auto placed = placed_parameters(model);
  ASSERT_EQ(placed.size(), names.size());
  for (std::size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i].name, names[i].name);
  MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  if (weighted) batch.weights = at::rand({6, 3}, at::kDouble);
  compare(model, batch, pre_norm_layer);
}

TEST(Transformer, IsGpt2) {
  compare([](TransformerConfig&) {});
}
TEST(Transformer, OfOtherKinds) {
  compare([](TransformerConfig& c) {
    c.norm = NormKind::kRmsNorm;
    c.position = PositionKind::kRotary;
    c.activation = ActivationKind::kSwiglu;
    c.query_groups = 2;
    c.bias = c.tied = false;
  });
  compare([](TransformerConfig& c) {
    c.bias = false;
    c.qkv_bias = true;
  });
  compare([](TransformerConfig& c) {
    c.activation = ActivationKind::kSquaredRelu;
    c.position = PositionKind::kNone;
  });
}
TEST(Transformer, TokensMayWeighDifferently) {
  compare([](TransformerConfig&) {}, true);
}
TEST(Transformer, RecomputedLayersHaveTheSameGradients) {
  compare([](TransformerConfig&) {}, false, {.recompute = {.method = RecomputeMethod::kUniform, .layers = 1}});
}

// A document behind another, which it does not see and whose positions it does not count, is as if it stood alone.
TEST(Transformer, DocumentsOfASampleMayBeApart) {
  for (const auto position : {PositionKind::kLearned, PositionKind::kRotary}) {
    Transformer model(config_of([&](TransformerConfig& c) { c.position = position; }));
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

// Products in bf16 have f32 weights, whose gradients a zero-bubble schedule can put off like all others.
TEST(Transformer, GradientsOfWeightsArePutOffInBF16) {
  const TransformerConfig config = config_of([](TransformerConfig& c) { c.precision = Precision::kBF16; });
  const MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  Transformer at_once(config), later(config);
  WeightGradients put_off;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    at_once.forward(batch).backward();
    const at::Tensor loss = later.forward(batch);
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

// A model is a value of its config: it is made and moved, its copy has its own weights, and the config may be gone.
TEST(Transformer, IsAValue) {
  const auto make = [] {
    const TransformerConfig config = config_of([](TransformerConfig& c) { c.position = PositionKind::kRotary; });
    Transformer model(config);
    return model;
  };
  Transformer model = make(), moved = std::move(model);
  const MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  const double loss = moved.forward(batch).item<double>();
  EXPECT_EQ(make().forward(batch).item<double>(), loss) << "the same seed and config";
  const at::NoGradGuard no_grad;
  moved.parameters()[0].mul_(2);
  const auto copy = std::dynamic_pointer_cast<Transformer>(moved.clone());
  ASSERT_TRUE(copy);
  const double changed = moved.forward(batch).item<double>();
  EXPECT_EQ(copy->forward(batch).item<double>(), changed) << "of the weights as they are";
  EXPECT_NE(changed, loss);
  copy->parameters()[0].zero_();
  EXPECT_EQ(moved.forward(batch).item<double>(), changed) << "the weights of a copy are its own";
}

// Attention and MLP in parallel, of one norm (GPT-J, PaLM): x + attention(norm(x)) + mlp(norm(x)).
class ParallelBlock : public TransformerModule {
 public:
  ParallelBlock(const LayerContext& layer, const BlockSpec& spec) : TransformerModule(layer) {
    norm_ = register_module("input_layernorm", std::make_shared<Norm>(layer.config, layer.parallel));
    attention_ = register_module("self_attention", spec.attention(layer));
    mlp_ = register_module("mlp", spec.mlp(layer));
  }
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    const at::Tensor normed = norm_->forward(x);
    return x + hidden_dropout(attention_->forward(normed, context), context, 1) +
           hidden_dropout(mlp_->forward(normed, context), context, 2);
  }

 private:
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<TransformerModule> attention_, mlp_;
};

BlockSpec parallel_block() {
  return {.block = [](const LayerContext& layer, const BlockSpec& spec) {
    return std::make_shared<ParallelBlock>(layer, spec);
  }};
}

TEST(BlockSpec, AttentionAndMlpInParallel) {
  const MicroBatch batch{.tokens = at::randint(11, {6, 3}, at::kLong), .targets = at::randint(11, {6, 3}, at::kLong)};
  const TransformerConfig config = config_of([](TransformerConfig& c) { c.norm = NormKind::kRmsNorm; });
  Transformer model(config, {}, {.block = parallel_block()});
  compare(model, batch, [](const TransformerConfig& c, const Weights& weights, const std::string& name, at::Tensor x) {
    const at::Tensor normed = norm(c, weights, name + "input_layernorm", x);
    return x + attention(c, weights, name + "self_attention.", normed) + mlp(c, weights, name + "mlp.", normed);
  });
  // Two tensor ranks with sequence parallelism, and dropout, have the loss of one.
  TransformerConfig dropping = config;
  dropping.hidden_dropout = dropping.attention_dropout = 0.1;
  Transformer alone(dropping, {}, {.block = parallel_block()});
  const double loss = alone.forward(batch).item<double>();
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const Parallel parallel = make_parallel(world, {.tensor = 2}, {.sequence_parallel = true});
    Transformer divided(dropping, parallel, {.block = parallel_block()});
    test::check(std::abs(divided.forward(batch).item<double>() - loss) < 1e-12, "the loss of one process");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
