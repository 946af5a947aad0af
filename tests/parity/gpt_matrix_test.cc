// Every grid of up to eight ranks trains as one process: tp {1, 2, 4} x pp {1, 2, 4} x dp {1, 2} x cp {1, 2} x one or
// two stages on each rank x sequence parallelism x recomputation x schedule, all that fit together. In f64, to 1e-10:
// the loss, every element of every gradient before clipping, the norm, and the weights, in each of three steps.
//
// The one process is not the trainer on one rank: of our own it has the model alone (which model_test.cc holds against
// its formulas). It goes through the micro batches in turn; clipping and AdamW are LibTorch's.
//
// What recomputes also has dropout and a token whose loss does not count, so both are seen on every grid.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
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
namespace {

constexpr int kSteps = 3, kMicroBatch = 2, kMicrobatches = 6;  // of a step, over all replicas
constexpr int kWords = 29;
constexpr double kTolerance = 1e-10;
constexpr double kClip = 0.5, kDecay = 0.1;

double learning_rate(int step) { return 2e-3 / step; }

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

// By the words of the documentation, not by the code that refuses.
bool should_fit(const Combination& c) {
  const bool chunked = c.schedule == ScheduleKind::kInterleaved || c.schedule == ScheduleKind::kZeroBubbleV;
  if (c.sequence_parallel && c.tensor == 1) return false;  // there is nothing to divide
  return chunked ? c.chunks == 2 && c.pipeline > 1 : c.chunks == 1;
}

struct GridSizes {
  int tensor, pipeline, data, context;
  int ranks() const { return tensor * pipeline * data * context; }
};

std::vector<GridSizes> grids() {
  std::vector<GridSizes> all;
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4})
      for (const int data : {1, 2})
        for (const int context : {1, 2})
          if (const GridSizes grid{tensor, pipeline, data, context}; grid.ranks() <= 8) all.push_back(grid);
  return all;
}

std::vector<Combination> combinations(const GridSizes& grid) {
  std::vector<Combination> all;
  for (const int chunks : {1, 2})
    for (const bool sequence_parallel : {false, true})
      for (const bool recompute : {false, true})
        for (const ScheduleKind schedule : kScheduleKinds)
          all.push_back(
              {grid.tensor, grid.pipeline, grid.data, grid.context, chunks, sequence_parallel, recompute, schedule});
  return all;
}

std::vector<Combination> fitting(const GridSizes& grid) {
  std::vector<Combination> all = combinations(grid);
  std::erase_if(all, [](const Combination& c) { return !should_fit(c); });
  return all;
}

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

int layers_of(const Combination& c) { return std::max(4, c.pipeline * c.chunks); }

// As for_world() takes them.
Options options_of(const Combination& c) {
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

at::Tensor box_of(at::Tensor whole, const TensorBox& box) {
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    whole = whole.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  return whole;
}

// A copy of what the one rank has, `local` in the shape of the parameter.
at::Tensor whole_of(const PlacedParameter& parameter, const at::Tensor& local) {
  const auto& shape = parameter.layout.shape;
  const at::Tensor whole = at::zeros(std::vector<std::int64_t>(shape.begin(), shape.end()), at::kDouble);
  for (const auto& [box, piece] : pieces(parameter.layout, local)) box_of(whole, box).copy_(piece);
  return whole;
}

torch::optim::AdamW adam_of(const std::vector<PlacedParameter>& parameters) {
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
Reference reference_of(int layers, bool recompute) {
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

void compare_tensors(const Combination& c, int step, const char* what, const Tensors& wanted,
                     const std::vector<PlacedParameter>& parameters, bool gradients, Findings& findings) {
  for (const auto& parameter : parameters) {
    const at::Tensor local = gradients ? parameter.tensor.grad() : parameter.tensor.detach();
    for (const auto& [box, piece] : pieces(parameter.layout, local)) {
      const at::Tensor apart = (piece - box_of(wanted.at(parameter.name), box)).abs().max();
      findings.compare(c, step, fmt::format("{} {} {}", what, parameter.name, box_text(box)), apart.item<double>());
    }
  }
}

// What pretrain_gpt does of a step, three times.
void train(const Combination& c, const Reference& wanted, const Group& world, Findings& findings) {
  const Options options = for_world(options_of(c), world.size()).or_throw();
  const Parallel groups = make_parallel(world, options);
  const auto stages = stages_of_rank(options, groups.pipeline.rank());
  const auto model = make_model(groups, options);
  model->train();
  GridStep weights(groups, options, model);
  LeveledTimers timers(0);
  const Words words;
  const bool reads = std::any_of(stages.begin(), stages.end(), [](const auto& s) { return s.is_first || s.is_last; });
  Batches batches(reads ? &words : nullptr, groups, options, SampleOrder::kSequential, model->sequence());
  std::vector<MicroBatch> batch;
  std::vector<Chunk> chunks;
  for (int chunk = 0; chunk < c.chunks; ++chunk)
    chunks.push_back([&, chunk](int microbatch, const at::Tensor& input) {
      return weights.forward(chunk, batch[std::size_t(microbatch)], input);
    });
  Pipeline pipeline(
      groups.pipeline, chunks,
      {.messages = {.dtype = DType::kF64, .sizes = model->activation_sizes(kMicroBatch)}, .broadcast_losses = true});
  for (int step = 1; step <= kSteps; ++step) {
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

class GptMatrix : public ::testing::TestWithParam<GridSizes> {};

void expect_trains_as_one_process(const GridSizes& grid, const std::vector<Combination>& all) {
  at::set_num_threads(1);  // a rank is a thread
  ASSERT_FALSE(all.empty());
  std::map<std::pair<int, bool>, Reference> references;
  for (const Combination& c : all) {
    Reference& made = references[{layers_of(c), c.recompute}];
    if (made.empty()) made = reference_of(layers_of(c), c.recompute);
    for (const StepRecord& record : made) ASSERT_GT(record.norm, 2 * kClip) << "nothing would be clipped";
  }
  Findings findings;
  const auto outcomes = test::run_threads(grid.ranks(),
                                          [&](Group& world) {
                                            for (const Combination& c : all) {
                                              try {
                                                train(c, references.at({layers_of(c), c.recompute}), world, findings);
                                              } catch (const std::exception& error) {
                                                throw std::runtime_error(c.text() + ": " + error.what());
                                              }
                                              findings.ran();
                                            }
                                          },
                                          {.watchdog = 600});
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_EQ(findings.failures(), "");
  EXPECT_EQ(findings.runs(), int(all.size()) * grid.ranks()) << "a combination was left out";
  fmt::print("{} combinations, {}\n", all.size(), findings.worst());
}

TEST_P(GptMatrix, TrainsAsOneProcess) { expect_trains_as_one_process(GetParam(), fitting(GetParam())); }

// Alone, with data, context and tensor parallelism.
TEST_P(GptMatrix, TrainsAsOneProcessFullySharded) {
  const GridSizes grid = GetParam();
  if (grid.pipeline > 1) return;  // rejected
  std::vector<Combination> all = fitting(grid);
  std::erase_if(all, [](const Combination& c) { return c.schedule != ScheduleKind::kOneForwardOneBackward; });
  for (Combination& c : all) c.fully_shard = true;
  expect_trains_as_one_process(grid, all);
}

INSTANTIATE_TEST_SUITE_P(Grids, GptMatrix, ::testing::ValuesIn(grids()), [](const auto& info) {
  const GridSizes& grid = info.param;
  return fmt::format("tp{}_pp{}_dp{}_cp{}", grid.tensor, grid.pipeline, grid.data, grid.context);
});

// So that none is lost unnoticed: what fits is counted, and all else is refused in a sentence.
TEST(GptMatrixItself, HasAllThatFits) {
  int fit = 0, refused = 0;
  for (const GridSizes& grid : grids())
    for (const Combination& c : combinations(grid)) {
      const auto options = for_world(options_of(c), c.ranks());
      EXPECT_EQ(options.ok(), should_fit(c))
          << c.text() << ": " << (options.ok() ? "fits" : to_string(options.error()));
      ++(options.ok() ? fit : refused);
    }
  EXPECT_EQ(grids().size(), 23u);
  EXPECT_EQ(fit, 278);
  EXPECT_EQ(refused, 23 * 40 - 278);
}

}  // namespace
}  // namespace tutti::gpt
