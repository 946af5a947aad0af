// Runs every block several times, each with a graph of its own, and the group's calls. Every rank computes at once, as
// in a step. Clocks are the host's: a measurement waits for a GPU before and after.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/blocks_module.h"
#include "tutti/parallel/optim/matrix_rule.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/parallelize.h"
#include "tutti/parallel/pipeline/graph_end.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/live_bytes.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {

namespace parallel {

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

}  // namespace parallel

namespace {

using parallel::BlocksModule;

constexpr int kRepeats = 3;              // of which the fastest counts
constexpr std::int64_t kFewestRows = 2;  // batch normalisation takes no single sample

// Until a GPU has done what the current stream has.
void await(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  devices.synchronizeStream(devices.getStream(device));
}

// Of all blocks; kUnsupported if they are on more than one.
Result<at::Device> device_of(const BlocksModule& blocks, const at::Tensor& inputs) {
  at::Device device = inputs.device();
  for (const NamedTensor& one : tensors_of(blocks))
    if (one.tensor.device() != device)
      return Error{.code = Code::kUnsupported,
                   .detail = "blocks can be measured on one device only: the inputs are " + describe(inputs) +
                             ", and " + one.name + " is " + describe(one.tensor),
                   .hint = "move inputs and blocks to one device, or give a DividedTraining the plan"};
  return device;
}

struct BlockRun {
  double forward = std::numeric_limits<double>::infinity(), backward = forward;
  double kept_bytes = 0, output_bytes = 0;
};

// Measuring draws random numbers and runs statistics; afterwards all is as it was, but for gradients, which are gone.
class Untouched {
 public:
  Untouched(const torch::nn::Module& module, at::Device device) : module_(module) {
    if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
    for (const NamedTensor& buffer : buffers_of(module_)) buffers_.push_back(buffer.tensor.clone());
    for (at::Generator& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      random_.push_back(generator.get_state());
    }
  }
  ~Untouched() {
    const at::NoGradGuard no_grad;
    std::size_t i = 0;
    for (const NamedTensor& buffer : buffers_of(module_)) at::Tensor(buffer.tensor).copy_(buffers_[i++]);
    for (const NamedTensor& parameter : parameters_of(module_))
      at::Tensor(parameter.tensor).mutable_grad() = at::Tensor();
    for (i = 0; i < generators_.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(random_[i]);
    }
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  const torch::nn::Module& module_;
  std::vector<at::Generator> generators_ = {at::detail::getDefaultCPUGenerator()};
  std::vector<at::Tensor> random_;
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
  const at::ScalarType type = parallel::type_of(blocks);
  const auto parameters = parameters_of(BlocksModule(blocks));
  const at::Device device = inputs.device();
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
        std::optional<LiveGpuBytes> on_gpu;
        if (!device.is_cpu()) on_gpu.emplace();
        await(device);
        const auto begin = now();
        at::Tensor output = blocks[i].forward(input);
        if (repeat == 0) check_output(input, output, type);
        outputs.push_back(output.detach());
        if (i + 1 == blocks.size()) {
          output = loss(output, target);
          TUTTI_REQUIRE(output.numel() == 1, "is followed by a loss that is ", describe(output),
                        "; expected one element");
        }
        await(device);
        if (repeat > 0) runs[i].forward = std::min(runs[i].forward, seconds_since(begin));
        runs[i].kept_bytes = double(on_gpu ? on_gpu->bytes() : live_bytes() - bytes);
        runs[i].output_bytes = double(outputs.back().nbytes());
        ends.emplace_back(output, at::ones_like(output.detach()));
      });
    for (std::size_t i = blocks.size(); i-- > 0;)
      of_block(blocks[i], [&] {
        await(device);
        const auto begin = now();
        auto& [end, gradient] = ends[i];
        if (end.requires_grad()) std::move(end).backward(gradient);
        await(device);
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

void measure_network(const Group& group, at::Device device, BlockChain& chain) {
  constexpr std::int64_t kFew = 256, kMany = std::int64_t(1) << 20;
  const int size = group.size(), next = (group.rank() + 1) % size, previous = (group.rank() + size - 1) % size;
  const at::Tensor values = at::zeros({kMany}, at::TensorOptions(device).dtype(at::kFloat)),
                   received = at::zeros_like(values);
  const auto sum = [&](std::int64_t count) {
    return timed(group, [&] { all_reduce(group, values.narrow(0, 0, count)), await(device); });
  };
  const auto pass = [&](std::int64_t count) {
    return timed(group, [&] {
      const TensorWork sent = isend(group, values.narrow(0, 0, count), next);
      recv(group, received.narrow(0, 0, count), previous);
      sent.get();
      await(device);
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

void measure_optimizer(const UpdateRule& rule, at::TensorOptions options, BlockChain& chain) {
  at::Tensor weight = at::zeros({512, 512}, options).requires_grad_();
  weight.mutable_grad() = at::zeros({512, 512}, options);
  Optimizer optimizer(std::vector<at::Tensor>{weight}, rule);
  double least = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    await(weight.device());
    const auto begin = now();
    optimizer.step();
    await(weight.device());
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
    const at::Device device = TUTTI_TRY(device_of(module, inputs));
    const Untouched untouched(module, device);
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
    measure_optimizer(rule, at::TensorOptions(device).dtype(parallel::type_of(blocks)), chain);
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

}  // namespace

BlockChain measure_blocks(const Group& group, const std::vector<Block>& blocks, const LossFunction& loss,
                          const UpdateRule& rule, const at::Tensor& inputs, const at::Tensor& targets) {
  Status given = blocks.empty() ? invalid_argument("a model without blocks cannot be measured; give it at least one")
                                : parallel::check_names(blocks);
  if (given.ok()) given = parallel::check_batch(inputs, targets);
  agree(group, given).or_throw();
  require_same_options(group, "measure_blocks", {{"samples", std::to_string(inputs.size(0))}});
  count_live_bytes();
  BlockChain chain{.blocks = std::vector<BlockCost>(blocks.size())};
  const std::int64_t all = inputs.size(0), rows = std::max(std::min(4 * kFewestRows, all), all / group.size());
  const Status measured = measure_alone(blocks, loss, rule, inputs, targets, rows, chain);
  agree(group, measured).or_throw();
  if (group.size() > 1) measure_network(group, inputs.device(), chain);
  average_over_ranks(group, chain);
  return chain;
}

}  // namespace tutti
