// A rank computes one stage of one replica: its stage is a module of its blocks, its pipeline goes over the ranks of
// its replica, and a Reducer averages over the replicas of its stage. Stages are far apart in the order of ranks and
// replicas are adjacent, since averages are the larger messages.
#include "tutti/parallel/parallelize.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/matrix_rule.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/rule_state.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/pipeline/graph_end.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/live_bytes.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

constexpr int kRepeats = 3;              // of which the fastest counts
constexpr std::int64_t kFewestRows = 2;  // batch normalisation takes no single sample

struct BlocksModule : torch::nn::Module {
  explicit BlocksModule(std::span<const Block> blocks) {
    for (const Block& block : blocks)
      if (block.module) register_module(block.name, block.module);
  }
};

std::vector<NamedTensor> tensors_in(std::span<const Block> blocks) { return tensors_of(BlocksModule(blocks)); }

bool trains(std::span<const Block> blocks) {
  const auto parameters = parameters_of(BlocksModule(blocks));
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.tensor.requires_grad(); });
}

at::ScalarType type_of(std::span<const Block> blocks) {
  for (const NamedTensor& parameter : parameters_of(BlocksModule(blocks)))
    if (parameter.tensor.is_floating_point()) return parameter.tensor.scalar_type();
  return at::kFloat;
}

// ---- measuring ----

struct BlockRun {
  double forward = std::numeric_limits<double>::infinity(), backward = forward;
  double kept_bytes = 0, output_bytes = 0;
};

// Measuring draws random numbers and runs statistics; afterwards all is as it was, but for gradients, which are gone.
class Untouched {
 public:
  explicit Untouched(const torch::nn::Module& module) : module_(module) {
    for (const NamedTensor& buffer : buffers_of(module_)) buffers_.push_back(buffer.tensor.clone());
    const std::lock_guard lock(generator_.mutex());
    random_ = generator_.get_state();
  }
  ~Untouched() {
    const at::NoGradGuard no_grad;
    std::size_t i = 0;
    for (const NamedTensor& buffer : buffers_of(module_)) at::Tensor(buffer.tensor).copy_(buffers_[i++]);
    for (const NamedTensor& parameter : parameters_of(module_))
      at::Tensor(parameter.tensor).mutable_grad() = at::Tensor();
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(random_);
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  const torch::nn::Module& module_;
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor random_;
  std::vector<at::Tensor> buffers_;
};

void check_output(const at::Tensor& input, const at::Tensor& output, at::ScalarType type) {
  TUTTI_REQUIRE(output.defined() && output.dim() > 0 && output.size(0) == input.size(0), "made ",
                output.defined() ? describe(output) : "no tensor", " of ", describe(input),
                "; expected a tensor whose first dimension counts the same samples");
  TUTTI_REQUIRE(output.scalar_type() == type, "made ", describe(output), "; expected the type of the parameters, ",
                c10::toString(type));
}

void check_gradients(const Block& block) {
  if (!block.module) return;
  for (const NamedTensor& parameter : parameters_of(*block.module))
    TUTTI_REQUIRE(!parameter.tensor.grad().defined() || parameter.tensor.grad().layout() == at::kStrided,
                  "has a sparse gradient of ", parameter.name, "; use a layer with dense gradients");
}

// An error that `act` throws begins with the block's name.
template <class Act>
void of_block(const Block& block, const Act& act) {
  try {
    act();
  } catch (const Exception& error) {
    Error named = error.error();
    named.detail = "block " + block.name + " " + named.detail;
    throw Exception(std::move(named));
  } catch (const std::exception& error) {
    const std::string text(error.what());
    throw Exception(
        Error{.code = Code::kAborted,
              .detail = "block " + block.name + " threw while it was measured: " + text.substr(0, text.find('\n'))});
  }
}

// Forwards of all blocks, then backwards of all, on so many rows: as in a step, a block's weights have left the caches
// when it comes again. Each block has a graph of its own.
std::vector<BlockRun> run_blocks(const std::vector<Block>& blocks, const LossFunction& loss, const at::Tensor& inputs,
                                 const at::Tensor& targets, std::int64_t rows) {
  const c10::AutoGradMode on(true);
  const at::Tensor target = targets.narrow(0, 0, rows);
  const at::ScalarType type = type_of(blocks);
  const auto parameters = parameters_of(BlocksModule(blocks));
  std::vector<BlockRun> runs(blocks.size());
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    for (const NamedTensor& parameter : parameters) at::Tensor(parameter.tensor).mutable_grad() = at::Tensor();
    std::vector<at::Tensor> outputs;
    std::vector<std::pair<GraphEnd, at::Tensor>> ends;  // with the gradient that comes back
    for (std::size_t i = 0; i < blocks.size(); ++i)
      of_block(blocks[i], [&] {
        at::Tensor input = i == 0 ? inputs.narrow(0, 0, rows) : outputs.back().detach().requires_grad_();
        input = input.clone();  // a block may work in place
        const std::int64_t bytes = live_bytes();
        const auto begin = now();
        at::Tensor output = blocks[i].forward(input);
        if (repeat == 0) check_output(input, output, type);
        outputs.push_back(output.detach());
        if (i + 1 == blocks.size()) {
          output = loss(output, target);
          TUTTI_REQUIRE(output.numel() == 1, "is followed by a loss that is ", describe(output),
                        "; expected one element");
        }
        if (repeat > 0) runs[i].forward = std::min(runs[i].forward, seconds_since(begin));
        runs[i].kept_bytes = double(live_bytes() - bytes);
        runs[i].output_bytes = double(outputs.back().nbytes());
        ends.emplace_back(output, at::ones_like(output.detach()));
      });
    for (std::size_t i = blocks.size(); i-- > 0;)
      of_block(blocks[i], [&] {
        const auto begin = now();
        auto& [end, gradient] = ends[i];
        if (end.requires_grad()) std::move(end).backward(gradient);
        if (repeat > 0) runs[i].backward = std::min(runs[i].backward, seconds_since(begin));
        if (repeat == 0) check_gradients(blocks[i]);
      });
  }
  return runs;
}

RowTime fitted(double few_seconds, double few, double many_seconds, double many) {
  if (few == many) return {.start = many_seconds};
  const double per_row = std::max(0.0, (many_seconds - few_seconds) / (many - few));
  return {.start = std::max(0.0, many_seconds - per_row * many), .per_row = per_row};
}

// The least time of a call on all ranks.
template <class Call>
double timed(const Group& group, const Call& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat <= 2 * kRepeats; ++repeat) {
    barrier(group);
    const auto begin = now();
    call();
    if (repeat > 0) least = std::min(least, seconds_since(begin));
  }
  return least;
}

void measure_network(const Group& group, BlockChain& chain) {
  constexpr std::size_t kFew = 256, kMany = std::size_t(1) << 20;
  const int size = group.size(), next = (group.rank() + 1) % size, previous = (group.rank() + size - 1) % size;
  std::vector<float> values(kMany), received(kMany);
  const auto sum = [&](std::size_t count) {
    return timed(group, [&] { all_reduce(group, std::span(values).first(count)); });
  };
  const auto pass = [&](std::size_t count) {
    return timed(group, [&] {
      const Work sent = isend(group, std::span<const float>(values).first(count), next);
      recv(group, std::span(received).first(count), previous);
      sent.get();
    });
  };
  // Of the slowest rank, for whom the others wait: the same figures everywhere.
  std::vector<double> seconds = {sum(kFew), sum(kMany), pass(kFew), pass(kMany)};
  all_reduce(group, std::span(seconds), ReduceOp::kMax);
  const auto bandwidth = [](double bytes, double few, double many) { return many > few ? bytes / (many - few) : 0; };
  constexpr double kBytes = double(kMany - kFew) * sizeof(float);
  chain.sum_start = seconds[0];
  chain.sum_bandwidth = bandwidth(kBytes * 2 * (size - 1) / size, seconds[0], seconds[1]);
  chain.message_start = seconds[2];
  chain.message_bandwidth = bandwidth(kBytes, seconds[2], seconds[3]);
}

void measure_optimizer(const UpdateRule& rule, at::ScalarType type, BlockChain& chain) {
  at::Tensor weight = at::zeros({512, 512}, type).requires_grad_();
  weight.mutable_grad() = at::zeros({512, 512}, type);
  Optimizer optimizer(std::vector<at::Tensor>{weight}, rule);
  double least = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    const auto begin = now();
    optimizer.step();
    if (repeat > 0) least = std::min(least, seconds_since(begin));
  }
  chain.step_seconds = least / double(weight.nbytes());
  chain.state_bytes = double(optimizer.state_bytes()) / double(weight.nbytes());
  chain.can_shard = !needs_matrix(rule);
}

// What is known without running a block.
void count_parameters(const std::vector<Block>& blocks, BlockChain& chain) {
  std::vector<std::pair<at::Tensor, int>> seen;
  for (int i = 0; i < int(blocks.size()); ++i) {
    if (!blocks[std::size_t(i)].module) continue;
    BlockCost& cost = chain.blocks[std::size_t(i)];
    for (const auto& [name, tensor] : tensors_of(*blocks[std::size_t(i)].module)) {
      if (name.ends_with("running_mean")) chain.least_rows = kFewestRows;
      const auto before =
          std::find_if(seen.begin(), seen.end(), [&t = tensor](const auto& s) { return s.first.is_same(t); });
      if (before != seen.end()) {
        if (before->second != i) chain.together.push_back({before->second, i + 1});
        continue;
      }
      seen.emplace_back(tensor, i);
      cost.weight_bytes += double(tensor.nbytes());
      if (tensor.requires_grad()) cost.trained_bytes += double(tensor.nbytes());
    }
  }
}

Status measure_alone(const std::vector<Block>& blocks, const LossFunction& loss, const UpdateRule& rule,
                     const at::Tensor& inputs, const at::Tensor& targets, std::int64_t rows, BlockChain& chain) {
  try {
    const BlocksModule module(blocks);
    const Untouched untouched(module);
    count_parameters(blocks, chain);
    const std::int64_t fewer = std::max(std::min(kFewestRows, rows), rows / 4);
    const auto few = run_blocks(blocks, loss, inputs, targets, fewer),
               many = run_blocks(blocks, loss, inputs, targets, rows);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      BlockCost& cost = chain.blocks[i];
      cost.forward = fitted(few[i].forward, double(fewer), many[i].forward, double(rows));
      cost.backward = fitted(few[i].backward, double(fewer), many[i].backward, double(rows));
      cost.kept_bytes = std::max(0.0, many[i].kept_bytes) / double(rows);
      cost.output_bytes = many[i].output_bytes / double(rows);
    }
    measure_optimizer(rule, type_of(blocks), chain);
    return {};
  } catch (const Exception& error) {
    return error.error();
  } catch (const std::exception& error) {
    const std::string text(error.what());
    return Error{.code = Code::kAborted, .detail = "measuring the blocks threw: " + text.substr(0, text.find('\n'))};
  }
}

// What all ranks measured, averaged: the same bits everywhere, so that all choose alike.
void average_over_ranks(const Group& group, BlockChain& chain) {
  std::vector<double*> figures = {&chain.step_seconds};
  for (BlockCost& block : chain.blocks)
    for (double* const figure : {&block.forward.start, &block.forward.per_row, &block.backward.start,
                                 &block.backward.per_row, &block.kept_bytes, &block.output_bytes})
      figures.push_back(figure);
  std::vector<double> values;
  for (const double* const figure : figures) values.push_back(*figure);
  all_reduce(group, std::span(values), ReduceOp::kAvg);
  for (std::size_t i = 0; i < figures.size(); ++i) *figures[i] = values[i];
}

Status check_names(const std::vector<Block>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].forward) return invalid_argument(fmt::format("block {} has no forward function; give it one", i));
    if (blocks[i].name.empty() || blocks[i].name.find('.') != std::string::npos)
      return invalid_argument(fmt::format("block {} is called \"{}\"; choose a name without a dot", i, blocks[i].name));
    for (std::size_t other = 0; other < i; ++other)
      if (blocks[other].name == blocks[i].name)
        return invalid_argument(
            fmt::format("blocks {} and {} are both called {}; give each a name of its own", other, i, blocks[i].name));
  }
  return {};
}

Status check_batch(const at::Tensor& inputs, const at::Tensor& targets) {
  if (!inputs.defined() || !targets.defined() || inputs.dim() == 0 || targets.dim() == 0)
    return invalid_argument("a batch needs inputs and targets, tensors whose first dimension counts the samples");
  if (inputs.size(0) != targets.size(0) || inputs.size(0) == 0)
    return invalid_argument(detail::words("a batch has ", inputs.size(0), " inputs and ", targets.size(0),
                                          " targets; expected as many of both, and at least one"));
  return {};
}

}  // namespace

BlockChain measure_blocks(const Group& group, const std::vector<Block>& blocks, const LossFunction& loss,
                          const UpdateRule& rule, const at::Tensor& inputs, const at::Tensor& targets) {
  Status given = blocks.empty() ? invalid_argument("a model without blocks cannot be measured; give it at least one")
                                : check_names(blocks);
  if (given.ok()) given = check_batch(inputs, targets);
  agree(group, given).or_throw();
  require_same_options(group, "measure_blocks", {{"samples", std::to_string(inputs.size(0))}});
  count_live_bytes();
  BlockChain chain{.blocks = std::vector<BlockCost>(blocks.size())};
  const std::int64_t all = inputs.size(0), rows = std::max(std::min(4 * kFewestRows, all), all / group.size());
  const Status measured = measure_alone(blocks, loss, rule, inputs, targets, rows, chain);
  agree(group, measured).or_throw();
  if (group.size() > 1) measure_network(group, chain);
  average_over_ranks(group, chain);
  return chain;
}

// ---- training ----

struct DividedTraining::State {
  State(const Group& group, std::vector<Block> all, LossFunction loss_function, UpdateRule update_rule,
        BlockPlan chosen, const ParallelizeOptions& given)
      : world(group),
        blocks(std::move(all)),
        loss(std::move(loss_function)),
        rule(std::move(update_rule)),
        plan(std::move(chosen)),
        options(given) {}

  std::span<const Block> blocks_of_stage(std::size_t stage) const {
    const LayerRange range = plan.stages[stage];
    return std::span(blocks).subspan(std::size_t(range.begin), std::size_t(range.size()));
  }
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == plan.stages.size(); }

  void take_part();
  Status check_all() const;
  void make_parts();
  void share_buffers() const;
  at::Tensor run_stage(int microbatch, const at::Tensor& input) const;
  double run(const at::Tensor& batch_inputs, const at::Tensor& batch_targets, bool learns);
  void finish_step();
  void clip();

  const Group world;
  const std::vector<Block> blocks;
  const LossFunction loss;
  const UpdateRule rule;
  const BlockPlan plan;
  const ParallelizeOptions options;

  std::optional<MeshGroups> groups;  // "stage", "replica"
  std::size_t stage = 0;
  int replica = 0;
  std::shared_ptr<BlocksModule> module;  // of this rank's stage
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<Reducer> reducer;  // null: the stage trains nothing
  std::unique_ptr<Optimizer> whole;  // one of the two, unless the stage trains nothing
  std::unique_ptr<ShardedOptimizer> sharded;
  at::Tensor inputs, targets;  // of this rank's rows, during a step
};

namespace {

// A parameter that two stages have would be stepped twice, apart.
Status check_shared(const std::vector<Block>& blocks, const BlockPlan& plan) {
  std::vector<std::pair<NamedTensor, std::size_t>> seen;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage)
    for (int i = plan.stages[stage].begin; i < plan.stages[stage].end; ++i) {
      const Block& block = blocks[std::size_t(i)];
      if (!block.module) continue;
      for (const NamedTensor& tensor : tensors_of(*block.module)) {
        for (const auto& [other, of_stage] : seen)
          if (other.tensor.is_same(tensor.tensor) && of_stage != stage)
            return invalid_argument(
                fmt::format("block {} shares {} with {} of another stage; give a plan that has "
                            "both in one stage",
                            block.name, tensor.name, other.name));
        seen.push_back({{block.name + "." + tensor.name, tensor.tensor}, stage});
      }
    }
  return {};
}

Status caught(const std::function<void()>& act) {
  try {
    act();
    return {};
  } catch (const Exception& error) {
    return error.error();
  } catch (const std::exception& error) {
    const std::string text(error.what());
    return Error{.code = Code::kAborted, .detail = text.substr(0, text.find('\n'))};
  }
}

// Puts a module into evaluation mode while it exists.
class Evaluating {
 public:
  explicit Evaluating(torch::nn::Module& module) {
    for (const auto& part : module.modules()) modes_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~Evaluating() {
    for (const auto& [part, training] : modes_) part->train(training);  // parents first
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace

void DividedTraining::State::take_part() {
  agree(world, check_all()).or_throw();
  require_same_options(world, "DividedTraining",
                       {{"plan", to_string(plan)},
                        {"rule", to_string(rule)},
                        {"clip_grad_norm", fmt::format("{}", options.clip_grad_norm)}});
  const auto tensors = without_repeats(tensors_in(blocks));
  require_same_structure(world, tensors);
  {
    const at::NoGradGuard no_grad;
    broadcast_values(world, tensors);
  }
  groups.emplace(split(world, Mesh({{"stage", int(plan.stages.size())}, {"replica", plan.replicas}})).or_throw());
  stage = std::size_t(groups->mesh().coordinate(world.rank(), "stage"));
  replica = groups->mesh().coordinate(world.rank(), "replica");
  module = std::make_shared<BlocksModule>(blocks_of_stage(stage));
  agree(world, caught([&] { make_parts(); })).or_throw();
}

// Of all stages, so that every rank finds the same.
Status DividedTraining::State::check_all() const {
  TUTTI_TRY(check_names(blocks));
  TUTTI_TRY(check(plan, int(blocks.size()), world.size(), std::int64_t(plan.replicas) * plan.microbatches));
  TUTTI_TRY(check_shared(blocks, plan));
  for (std::size_t i = 0; i < plan.stages.size() && plan.shards_optimizer && plan.stages.size() > 1; ++i)
    if (!trains(blocks_of_stage(i)))
      return invalid_argument(
          fmt::format("the plan \"{}\" has a stage {} without a parameter to train, so its optimizer "
                      "cannot be sharded; set shards_optimizer to false",
                      to_string(plan), i));
  return caught([&] {
    require_clip_limit("DividedTraining", "clip_grad_norm", options.clip_grad_norm);
    for (const NamedTensor& parameter : parameters_of(BlocksModule(blocks)))
      if (parameter.tensor.requires_grad())
        updated_dtype(parameter.tensor, "DividedTraining: parameter " + parameter.name);
  });
}

void DividedTraining::State::make_parts() {
  if (trains(blocks_of_stage(stage))) {
    // One replica averages nothing, so nothing is checked on the way.
    const FiniteCheck check = plan.replicas == 1 ? FiniteCheck::kThrow : FiniteCheck::kInReduction;
    reducer = std::make_unique<Reducer>(
        module, groups->along("replica"),
        DataParallelOptions{.broadcast_buffers = false, .find_unused_parameters = true, .finite_check = check});
    if (plan.shards_optimizer)
      sharded = std::make_unique<ShardedOptimizer>(
          *reducer, rule, ShardedOptimizerOptions{.model = plan.stages.size() > 1 ? groups->along("stage") : Group()});
    else
      whole = std::make_unique<Optimizer>(*module, rule);
  }
  PipelineOptions with{.messages = {.dtype = type_of(blocks) == at::kDouble ? DType::kF64 : DType::kF32},
                       .tell_losses = true};
  with.before_last_backward = [this](int) {
    if (reducer) reducer->set_sync(true);
  };
  pipeline = std::make_unique<Pipeline>(
      groups->along("stage"),
      std::vector<Chunk>{[this](int microbatch, const at::Tensor& input) { return run_stage(microbatch, input); }},
      std::move(with));
}

at::Tensor DividedTraining::State::run_stage(int microbatch, const at::Tensor& input) const {
  const std::int64_t count = inputs.size(0) / plan.microbatches, begin = count * microbatch;
  at::Tensor value = is_first() ? inputs.narrow(0, begin, count) : input.clone();  // a block may work in place
  for (const Block& block : blocks_of_stage(stage)) value = block.forward(value);
  return is_last() ? loss(value, targets.narrow(0, begin, count)) : value;
}

double DividedTraining::State::run(const at::Tensor& batch_inputs, const at::Tensor& batch_targets, bool learns) {
  Status fits = check_batch(batch_inputs, batch_targets);
  if (fits.ok()) fits = check(plan, int(blocks.size()), world.size(), batch_inputs.size(0));
  agree_on(world, "the ranks gave different batches",
           {{"samples", fits.ok() ? std::to_string(batch_inputs.size(0)) : to_string(fits.error())}},
           "give every rank a batch of the same size")
      .or_throw();
  fits.or_throw();
  const std::int64_t count = batch_inputs.size(0) / plan.replicas;
  inputs = batch_inputs.narrow(0, count * replica, count);
  targets = batch_targets.narrow(0, count * replica, count);
  StepResult result;
  const Status ran = caught([&] {
    result = pipeline->run(
        make_schedule(ScheduleKind::kOneForwardOneBackward,
                      {.ranks = int(plan.stages.size()), .microbatches = plan.microbatches, .forward_only = !learns}));
  });
  inputs = targets = at::Tensor();
  agree(world, ran).or_throw();  // other replicas know nothing of it
  double sum = 0;
  for (const double one : result.losses) sum += one;
  return all_reduce(groups->along("replica"), sum / plan.microbatches, ReduceOp::kAvg);
}

// By the norm of all stages together.
void DividedTraining::State::clip() {
  const auto parameters = without_repeats(parameters_of(*module));
  const double mine = whole ? gradient_norm(parameters).norm : 0;
  const double norm = std::sqrt(all_reduce(groups->along("stage"), mine * mine, ReduceOp::kSum));
  const double factor = clip_factor(norm, options.clip_grad_norm);
  if (factor >= 1) return;
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters)
    if (at::Tensor gradient = parameter.tensor.grad(); gradient.defined()) gradient.mul_(factor);
}

// All ranks learn of an error before any of them steps.
void DividedTraining::State::finish_step() {
  Status averaged = caught([&] {
    if (reducer) reducer->finish();
  });
  agree(world, averaged).or_throw();
  if (sharded) {
    averaged = caught([&] {
      const GradientNorm norm = sharded->clip_grad_norm(
          options.clip_grad_norm > 0 ? options.clip_grad_norm : std::numeric_limits<double>::max());
      if (!norm.finite()) throw Exception(Error{.code = Code::kNonFinite, .detail = norm.non_finite});
    });
    agree(world, averaged).or_throw();
    sharded->step();
    return;
  }
  if (options.clip_grad_norm > 0) clip();
  if (whole) whole->step();
}

// After each step, so that what is evaluated and saved is the same everywhere.
void DividedTraining::State::share_buffers() const {
  if (plan.replicas == 1) return;
  const at::NoGradGuard no_grad;
  broadcast_values(groups->along("replica"), buffers_of(*module));
}

DividedTraining::DividedTraining(const Group& group, std::vector<Block> blocks, LossFunction loss, UpdateRule rule,
                                 BlockPlan plan, const ParallelizeOptions& options)
    : state_(std::make_unique<State>(group, std::move(blocks), std::move(loss), std::move(rule), std::move(plan),
                                     options)) {
  state_->take_part();
}
DividedTraining::~DividedTraining() = default;
DividedTraining::DividedTraining(DividedTraining&&) noexcept = default;

double DividedTraining::step(const at::Tensor& inputs, const at::Tensor& targets) {
  State& s = *state_;
  if (s.sharded) s.sharded->zero_grad();
  if (s.reducer) {
    s.reducer->zero_grad();
    s.reducer->set_sync(false);
  }
  const double mean = s.run(inputs, targets, true);
  s.finish_step();
  s.share_buffers();
  return mean;
}

double DividedTraining::evaluate(const at::Tensor& inputs, const at::Tensor& targets) {
  const Evaluating evaluating(*state_->module);
  return state_->run(inputs, targets, false);
}

DividedTraining::Rows DividedTraining::rows(std::int64_t batch) const {
  const std::int64_t count = batch / state_->plan.replicas;
  return {.begin = count * state_->replica, .count = count};
}
const BlockPlan& DividedTraining::plan() const { return state_->plan; }

void DividedTraining::set_lr(double lr) {
  if (state_->whole) state_->whole->set_lr(lr);
  if (state_->sharded) state_->sharded->set_lr(lr);
}

void DividedTraining::gather_weights() {
  const at::NoGradGuard no_grad;
  for (std::size_t stage = 0; stage < state_->plan.stages.size(); ++stage)
    broadcast_values(state_->groups->along("stage"), without_repeats(tensors_in(state_->blocks_of_stage(stage))),
                     int(stage));
}

void DividedTraining::state(StateDict& dict) {
  dict.add("model", *state_->module);
  if (state_->whole) dict.add("optimizer", *state_->whole);
  if (state_->sharded) dict.add("optimizer", *state_->sharded);
}

DividedTraining parallelize(const Group& group, std::vector<Block> blocks, LossFunction loss, UpdateRule rule,
                            const at::Tensor& inputs, const at::Tensor& targets, const ParallelizeOptions& options) {
  require_same_options(group, "parallelize", {{"memory", fmt::format("{}", options.memory)}});
  const BlockChain chain = measure_blocks(group, blocks, loss, rule, inputs, targets);
  const auto plans =
      plan_blocks(chain, {.ranks = group.size(), .batch = inputs.size(0), .memory = options.memory}).or_throw();
  return DividedTraining(group, std::move(blocks), std::move(loss), std::move(rule), plans.front().plan, options);
}

}  // namespace tutti
