#pragma once
// A GPT on a grid of ranks against one process, in f64: the loss, every element of every gradient before clipping, the
// norm, and the weights, in each of three steps.
//
// The one process is not the trainer on one rank: of our own it has the model alone (which model_test.cc holds against
// its formulas). It goes through the micro batches in turn; clipping and AdamW are LibTorch's.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/models/gpt/batches.h"
#include "tutti/models/gpt/grid_step.h"
#include "tutti/models/gpt/model.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/training/leveled_timers.h"

namespace tutti::gpt {

inline constexpr int kSteps = 3, kMicroBatch = 2, kMicrobatches = 6;  // of a step, over all replicas
inline constexpr int kWords = 29;
inline constexpr double kTolerance = 1e-10;
inline constexpr double kClip = 0.5, kDecay = 0.1;

inline double learning_rate(int step) { return 2e-3 / step; }

struct Combination {
  int tensor = 1, pipeline = 1, data = 1, context = 1, chunks = 1;
  bool sequence_parallel = false, recompute = false;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  bool fully_shard = false;

  int ranks() const { return tensor * pipeline * data * context; }
  std::string text() const {
    return fmt::format("tp={} pp={} dp={} cp={}, {}, {} a rank{}{}{}", tensor, pipeline, data, context, name(schedule),
                       chunks, sequence_parallel ? ", sequence parallel" : "", recompute ? ", recomputed" : "",
                       fully_shard ? ", fully sharded" : "");
  }
};

// Tokens without a pattern.
class Words : public GptDataset {
 public:
  std::int64_t size() const override { return 1 << 20; }
  void read(std::int64_t i, std::span<std::int64_t> into) const override {
    for (std::size_t k = 0; k < into.size(); ++k) {
      const auto place = std::uint64_t(i) * 64 + k;
      into[k] = std::int64_t(place * place * 0x9e3779b97f4a7c15u >> 40) % kWords;
    }
  }
};

inline int layers_of(const Combination& c) { return std::max(4, c.pipeline * c.chunks); }

// As for_world() takes them.
inline Options options_of(const Combination& c) {
  Options options;
  auto& shape = options.model;
  shape.layers = layers_of(c);
  shape.hidden = 16;
  shape.heads = shape.query_groups = 4;
  shape.head_size = 4;
  shape.ffn = 32;
  shape.vocabulary = kWords;
  shape.sequence_length = shape.positions = 8;
  options.model.vocabulary_divisible_by = 4;
  options.model.precision = Precision::kF64;
  options.model.initial_deviation = 0.3;
  options.model.hidden_dropout = options.model.attention_dropout = c.recompute ? 0.1 : 0;
  if (c.recompute) options.masked_token = 3;
  options.batches.micro_batch = kMicroBatch;
  options.batches.global_batch = kMicroBatch * kMicrobatches;
  options.train_steps = kSteps;
  options.optimizer.clip_grad = kClip;
  options.optimizer.learning_rate.most = learning_rate(1);
  options.optimizer.weight_decay = {.start = kDecay, .end = kDecay};
  auto& parallel = options.parallel;
  parallel.grid = {.tensor = c.tensor, .pipeline = c.pipeline, .context = c.context};
  parallel.schedule = c.schedule;
  parallel.chunks = c.chunks;
  parallel.sequence_parallel = c.sequence_parallel;
  parallel.fully_shard = c.fully_shard;
  if (c.recompute) parallel.recompute = {.method = RecomputeMethod::kUniform, .layers = 1};
  return options;
}

// ---- One process ----

using Tensors = std::map<std::string, at::Tensor>;  // by the parameter's name

struct StepRecord {
  double loss = 0, norm = 0;
  Tensors gradients, weights;  // whole: without padding
};
using Reference = std::vector<StepRecord>;  // by step

inline at::Tensor box_of(at::Tensor whole, const TensorBox& box) {
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    whole = whole.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  return whole;
}

// A copy of what the one rank has, `local` in the shape of the parameter.
inline at::Tensor whole_of(const PlacedParameter& parameter, const at::Tensor& local) {
  const auto& shape = parameter.layout.shape;
  const at::Tensor whole = at::zeros(std::vector<std::int64_t>(shape.begin(), shape.end()), at::kDouble);
  for (const auto& [box, piece] : pieces(parameter.layout, local)) box_of(whole, box).copy_(piece);
  return whole;
}

inline torch::optim::AdamW adam_of(const std::vector<PlacedParameter>& parameters) {
  std::vector<at::Tensor> decayed, others;
  for (const auto& parameter : parameters) (parameter.tensor.dim() > 1 ? decayed : others).push_back(parameter.tensor);
  const auto rule = [](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(1).betas({0.9, 0.999}).eps(1e-8).weight_decay(decay));
  };
  return torch::optim::AdamW(
      {torch::optim::OptimizerParamGroup(decayed, rule(kDecay)), torch::optim::OptimizerParamGroup(others, rule(0))},
      torch::optim::AdamWOptions(1));
}

// The micro batches in turn, then LibTorch's clipping and AdamW.
inline Reference reference_of(int layers, bool recompute) {
  Combination one{.recompute = recompute};
  Options options = options_of(one);
  options.model.layers = layers;
  options.parallel.recompute = {};
  options = for_world(options, 1).or_throw();
  const auto world = make_inproc_world(1);
  const Parallel groups = make_parallel(world[0], options);
  const auto model = make_model(groups, options);
  model->train();
  const Words words;
  Batches batches(&words, groups, options, SampleOrder::kSequential, model->sequence());
  const auto parameters = placed_parameters(*model);
  torch::optim::AdamW adam = adam_of(parameters);

  Reference steps;
  for (int step = 1; step <= kSteps; ++step) {
    StepRecord& record = steps.emplace_back();
    adam.zero_grad();
    for (const MicroBatch& batch : batches.take(kMicrobatches, step)) {
      const at::Tensor loss = model->forward(0, batch, {}) / kMicrobatches;
      record.loss += loss.item<double>();
      loss.backward();
    }
    for (const auto& parameter : parameters)
      record.gradients[parameter.name] = whole_of(parameter, parameter.tensor.grad());
    record.norm = torch::nn::utils::clip_grad_norm_(model->parameters(), kClip);
    for (auto& group : adam.param_groups())
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate(step));
    adam.step();
    for (const auto& parameter : parameters)
      record.weights[parameter.name] = whole_of(parameter, parameter.tensor.detach());
  }
  return steps;
}

// ---- A grid ----

// What all ranks of a grid found.
class Findings {
 public:
  // NaN is apart from everything.
  void compare(const Combination& c, int step, const std::string& what, double apart) {
    const std::lock_guard lock(mutex_);
    if (apart <= worst_) return;
    if (apart <= kTolerance) {
      worst_ = apart;
      worst_of_ = fmt::format("{}: step {}, {}", c.text(), step, what);
      return;
    }
    auto& said = failures_[c.text()];
    if (said.size() < 4) said.push_back(fmt::format("  step {}, {}: {:.3g} apart", step, what, apart));
  }
  void ran() {
    const std::lock_guard lock(mutex_);
    ++ran_;
  }

  int runs() const { return ran_; }  // of single ranks
  std::string worst() const { return fmt::format("worst {:.2g} ({})", worst_, worst_of_); }
  std::string failures() const {
    std::string text;
    for (const auto& [combination, said] : failures_)
      text += fmt::format("{}\n{}\n", combination, fmt::join(said, "\n"));
    return text;
  }

 private:
  std::mutex mutex_;
  int ran_ = 0;
  double worst_ = 0;
  std::string worst_of_ = "all equal to the bit";
  std::map<std::string, std::vector<std::string>> failures_;  // by combination, of each the first few
};

inline void compare_tensors(const Combination& c, int step, const char* what, const Tensors& wanted,
                            const std::vector<PlacedParameter>& parameters, bool gradients, Findings& findings) {
  for (const auto& parameter : parameters) {
    const at::Tensor local = gradients ? parameter.tensor.grad() : parameter.tensor.detach();
    for (const auto& [box, piece] : pieces(parameter.layout, local)) {
      const at::Tensor apart = (piece.cpu() - box_of(wanted.at(parameter.name), box)).abs().max();
      findings.compare(c, step, fmt::format("{} {} {}", what, parameter.name, box_text(box)), apart.item<double>());
    }
  }
}

// What pretrain_gpt does of a step, `steps` times.
inline void train(const Combination& c, const Reference& wanted, const Group& world, Findings& findings,
                  at::Device device = at::kCPU, int steps = kSteps) {
  const Options options = for_world(options_of(c), world.size()).or_throw();
  const Parallel groups = make_parallel(world, options);
  const auto stages = stages_of_rank(options, groups.pipeline.rank());
  const auto model = make_model(groups, options, device);
  model->train();
  GridStep weights(groups, options, model);
  LeveledTimers timers(0);
  const Words words;
  const bool reads = std::any_of(stages.begin(), stages.end(), [](const auto& s) { return s.is_first || s.is_last; });
  Batches batches(reads ? &words : nullptr, groups, options, SampleOrder::kSequential, model->sequence(), device);
  std::vector<MicroBatch> batch;
  std::vector<Chunk> chunks;
  for (int chunk = 0; chunk < c.chunks; ++chunk)
    chunks.push_back([&, chunk](int microbatch, const at::Tensor& input) {
      return weights.forward(chunk, batch[std::size_t(microbatch)], input);
    });
  Pipeline pipeline(
      groups.pipeline, chunks,
      {.messages = {.dtype = DType::kF64, .device = device, .sizes = model->activation_sizes(kMicroBatch)},
       .broadcast_losses = true});
  for (int step = 1; step <= steps; ++step) {
    const StepRecord& record = wanted[std::size_t(step - 1)];
    weights.zero_grad();
    batch = batches.take(kMicrobatches / c.data, step);
    const StepResult passed = pipeline.run(pipeline_schedule(options, int(batch.size()), false));
    const StepOutcome outcome = weights.finish(learning_rate(step), kDecay, timers);
    double loss = 0;
    for (const double one : passed.losses) loss += one / double(passed.losses.size());
    if (groups.averaging.size() > 1)
      loss = all_reduce(groups.averaging, loss, ReduceOp::kSum) / groups.averaging.size();
    findings.compare(c, step, "the loss", std::abs(loss - record.loss));
    findings.compare(c, step, "the norm of the gradient", std::abs(outcome.gradient_norm - record.norm));
    if (!c.fully_shard) compare_tensors(c, step, "gradient of", record.gradients, weights.parameters(), true, findings);
    std::optional<ShardedModule::Whole> whole;
    if (c.fully_shard) whole.emplace(*weights.fully_sharded());
    compare_tensors(c, step, "weight", record.weights, weights.parameters(), false, findings);
  }
}

}  // namespace tutti::gpt
