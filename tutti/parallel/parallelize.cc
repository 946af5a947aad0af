// A rank computes one stage of one replica: its stage is a module of its blocks, its pipeline goes over the ranks of
// its replica, and a Reducer averages over the replicas of its stage. Stages are far apart in the order of ranks and
// replicas are adjacent, since averages are the larger messages.
#include "tutti/parallel/parallelize.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/parallel/blocks_module.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/rule_state.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {

namespace {

std::vector<NamedTensor> tensors_in(std::span<const Block> blocks) {
  return tensors_of(parallel::BlocksModule(blocks));
}

bool trains(std::span<const Block> blocks) {
  const auto parameters = parameters_of(parallel::BlocksModule(blocks));
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.tensor.requires_grad(); });
}

}  // namespace

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
  std::shared_ptr<parallel::BlocksModule> module;  // of this rank's stage
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
  module = std::make_shared<parallel::BlocksModule>(blocks_of_stage(stage));
  agree(world, caught([&] { make_parts(); })).or_throw();
}

// Of all stages, so that every rank finds the same.
Status DividedTraining::State::check_all() const {
  TUTTI_TRY(parallel::check_names(blocks));
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
    const parallel::BlocksModule all(blocks);
    const at::Device device = parallel::options_of(blocks).device();
    for (const NamedTensor& one : tensors_of(all)) {
      require_memory(one.tensor, "DividedTraining: " + one.name);
      TUTTI_REQUIRE(one.tensor.device() == device, "DividedTraining: ", one.name, " is ", describe(one.tensor),
                    ", other tensors are on ", device.str(), "; put all blocks on one device");
    }
    for (const NamedTensor& parameter : parameters_of(all))
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
  const at::TensorOptions kind = parallel::options_of(blocks);
  PipelineOptions with{
      .messages = {.dtype = kind.dtype() == at::kDouble ? DType::kF64 : DType::kF32, .device = kind.device()},
      .broadcast_losses = true};
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
  Status fits = parallel::check_batch(batch_inputs, batch_targets);
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
