// DataParallel against PyTorch's DistributedDataParallel over gloo, option by option: the same initial weights and
// batches, which travel as safetensors files, and the loss of each of 20 steps of each rank within 1e-5.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "tests/harness/ranks.h"
#include "tests/parity/torch_oracle.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/local_sgd.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/data_parallel/join.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/caching_allocator.h"

namespace tutti {
namespace {

using test::check;

constexpr int kSteps = 20, kMostRanks = 3, kBatch = 8;

struct Shape {
  bool norm = false, table = false, sparse = false, extra = false, tied = false;
};

torch::nn::EmbeddingOptions rows_of(const Shape& shape) {
  return torch::nn::EmbeddingOptions(30, 64).sparse(shape.sparse);
}

class Net : public torch::nn::Module {
 public:
  explicit Net(const Shape& shape) : tied_(shape.tied) {
    if (shape.table) table = register_module("table", torch::nn::Embedding(rows_of(shape)));
    fc1 = register_module("fc1", torch::nn::Linear(20, 64));
    fc2 = register_module("fc2", torch::nn::Linear(64, 64));
    out = register_module("out", torch::nn::Linear(64, 10));
    if (shape.norm) norm = register_module("norm", torch::nn::BatchNorm1d(64));
    if (shape.extra) extra = register_module("extra", torch::nn::Linear(20, 64));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rows, bool use_extra) {
    const auto looked_up = table ? table->forward(rows) : at::Tensor();
    auto h = at::tanh(fc1->forward(x));
    if (norm) h = norm->forward(h);
    if (table) h = h + looked_up;
    if (use_extra) h = h + at::tanh(extra->forward(x));
    h = at::tanh(fc2->forward(h));
    if (tied_) h = at::tanh(fc2->forward(h));
    return at::log_softmax(out->forward(h), 1);
  }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr}, out{nullptr}, extra{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Embedding table{nullptr};

 private:
  bool tied_;
};

struct Case {
  Shape shape = {};
  DataParallelOptions options = {};
  std::function<std::shared_ptr<CommHook>()> hook = {};
  std::function<bool(int step, int rank)> use_extra = [](int, int) { return false; };
  int accumulate = 1;
  double momentum = 0.9;
  std::string frozen = {};
  bool uneven = false;
  JoinUnevenOptions join = {};
  PeriodicAveragerOptions average = {};
  double scale = 0, clip_norm = 0, clip_value = 0;  // 0: not
  std::optional<UpdateRule> sharded = {};           // stepped by a ShardedOptimizer
  int stage = 1;
  double tolerance = 1e-5;
  std::string like = {};  // PyTorch's case, if it has another name
};

std::function<std::shared_ptr<CommHook>()> power(PowerSgdOptions options) {
  options.start_step = 3;
  return [options] { return std::make_shared<PowerSgd>(options); };
}

const UpdateRule kSgd = SgdOptions{.lr = 0.05, .momentum = 0.9};

std::map<std::string, Case> cases() {
  const auto sometimes = [](int step, int rank) { return step % 4 != 0 && (step + rank) % 3 == 0; };
  return {
      {"plain", {}},
      {"views", {.options = {.gradient_as_bucket_view = true}}},
      {"small_buckets",
       {.options = {.first_bucket_bytes = 1048, .bucket_cap_mb = mebibytes(1048), .overlap = Overlap::kOn}}},
      {"find_unused", {.shape = {.extra = true}, .options = {.find_unused_parameters = true}, .use_extra = sometimes}},
      {"static_graph", {.shape = {.extra = true}, .options = {.static_graph = true}}},
      {"static_graph_views",
       {.shape = {.tied = true}, .options = {.gradient_as_bucket_view = true, .static_graph = true}}},
      {"no_sync", {.accumulate = 2}},
      {"tied", {.shape = {.tied = true}}},
      {"frozen", {.frozen = "fc2.weight"}},
      {"batch_norm", {.shape = {.norm = true}}},
      {"batch_norm_own_buffers", {.shape = {.norm = true}, .options = {.broadcast_buffers = false}}},
      {"join", {.uneven = true}},
      {"join_by_active", {.uneven = true, .join = {.divide_by_initial_world_size = false}}},
      {"join_batch_norm", {.shape = {.norm = true}, .uneven = true}},
      {"sparse", {.shape = {.table = true, .sparse = true}, .momentum = 0}},
      {"dense_table", {.shape = {.table = true}, .momentum = 0}},
      {"ignore", {.options = {.params_and_buffers_to_ignore = {"fc2.bias"}}}},
      // Both round the gradients to 16 bits; PyTorch once more after each addition.
      {"f16", {.hook = f16_compression, .tolerance = 1e-4}},
      {"bf16", {.hook = bf16_compression, .tolerance = 1e-3}},
      {"power_sgd_1", {.hook = power({.rank = 1})}},
      {"power_sgd_2", {.hook = power({.rank = 2})}},
      {"power_sgd_4", {.hook = power({.rank = 4, .min_compression_rate = 1})}},
      {"power_sgd_cold", {.hook = power({.rank = 2, .warm_start = false})}},
      {"power_sgd_forgets", {.hook = power({.rank = 1, .error_feedback = false})}},
      {"power_sgd_epsilon", {.hook = power({.rank = 1, .orthogonalization_epsilon = 1e-6})}},
      {"local_sgd", {.hook = [] { return local_sgd({.start_step = 5}); }, .average = {.period = 4, .warmup_steps = 5}}},
      // The same casts; a sum in another order can end in the next number of 8 bits.
      {"autocast", {.options = {.autocast = DType::kBF16}, .tolerance = 1e-3}},
      {"autocast_f16", {.options = {.autocast = DType::kF16}, .scale = 1024, .tolerance = 1e-3}},
      {"f16_scaled", {.hook = f16_compression, .scale = 0x1p20, .tolerance = 1e-4}},
      // In PyTorch the error that PowerSGD keeps is added at the wrong scale: with one that changes, as without any.
      {"power_sgd_scaled", {.hook = power({.rank = 2}), .scale = 1024, .like = "power_sgd_2"}},
      {"clip_norm", {.clip_norm = 0.5}},
      {"clip_value", {.clip_value = 0.02}},
      {"sharded_clip_norm", {.clip_norm = 0.5, .sharded = kSgd, .like = "clip_norm"}},
      {"sharded_clip_value", {.clip_value = 0.02, .sharded = kSgd, .stage = 2, .like = "clip_value"}},
      {"sharded_2", {.sharded = kSgd, .stage = 2, .like = "plain"}},
      {"zero_sgd", {.sharded = SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}},
      {"zero_adam", {.sharded = AdamOptions{.lr = 1e-3, .weight_decay = 0.01}}},
      {"zero_adamw", {.clip_norm = 0.5, .sharded = AdamWOptions{.lr = 1e-3, .weight_decay = 0.1}}},
      {"zero_adagrad", {.sharded = AdagradOptions{.lr = 0.01}}},
      // Averaged in every step, late. (PyTorch has delay_all_reduce_named_params, whose all_reduce nobody waits for.)
      {"delayed", {.options = {.delay_all_reduce_named_params = {"fc2.weight"}}, .like = "plain"}},
  };
}

using Shapes = std::vector<std::pair<std::string, std::vector<std::uint64_t>>>;

// Without LibTorch, which must not run before ranks are forked.
class Files {
 public:
  Files() {
    auto name = (std::filesystem::temp_directory_path() / "tutti_torch_ddp_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    folder_ = name;
    std::mt19937 random(11);
    write("weights",
          {{"fc1.weight", {64, 20}},
           {"fc1.bias", {64}},
           {"fc2.weight", {64, 64}},
           {"fc2.bias", {64}},
           {"out.weight", {10, 64}},
           {"out.bias", {10}},
           {"extra.weight", {64, 20}},
           {"extra.bias", {64}},
           {"table.weight", {30, 64}},
           {"norm.weight", {64}},
           {"norm.bias", {64}}},
          {}, 0.15f, random);
    write("data", {{"x", {kSteps, kMostRanks, kBatch, 20}}},
          {{"y", {kSteps, kMostRanks, kBatch}}, {"rows", {kSteps, kMostRanks, kBatch}}}, 1, random);
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  const std::string& folder() const { return folder_; }

 private:
  void write(const std::string& name, const Shapes& floats, const Shapes& labels, float deviation,
             std::mt19937& random) {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<std::int64_t>> numbers;
    std::vector<SafetensorsTensor> tensors;
    const auto count = [](const std::vector<std::uint64_t>& shape) {
      return std::accumulate(shape.begin(), shape.end(), std::uint64_t(1), std::multiplies<>());
    };
    std::normal_distribution<float> normal(0, deviation);
    for (const auto& [tensor, shape] : floats) {
      auto& made = values.emplace_back(count(shape));
      for (auto& value : made) value = normal(random);
      tensors.push_back({tensor, DType::kF32, shape, nullptr});
    }
    for (const auto& [tensor, shape] : labels) {
      auto& made = numbers.emplace_back(count(shape));
      for (auto& value : made) value = std::int64_t(random() % 10);
      tensors.push_back({tensor, DType::kI64, shape, nullptr});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i)
      tensors[i].data =
          i < values.size() ? static_cast<const void*>(values[i].data()) : numbers[i - values.size()].data();
    write_safetensors(folder_ + "/" + name + ".safetensors", tensors).or_throw();
  }

  std::string folder_;
};

at::Tensor read(const SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  check(entry, "no tensor ", name);
  const std::vector<std::int64_t> shape(entry->shape.begin(), entry->shape.end());
  const auto tensor = at::empty(shape, entry->dtype == "I64" ? at::kLong : at::kFloat);
  file.read(*entry, {static_cast<std::byte*>(tensor.data_ptr()), std::size_t(tensor.nbytes())}).or_throw();
  return tensor;
}

struct Batches {
  at::Tensor x, y, rows;
};

std::vector<double> train(Group& world, const Case& with, const SafetensorsFile& weights, const Batches& batches) {
  const auto net = std::make_shared<Net>(with.shape);
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : net->named_parameters()) item.value().copy_(read(weights, item.key()));
  }
  std::vector<at::Tensor> trained;
  for (auto& item : net->named_parameters()) {
    if (item.key() == with.frozen) {
      item.value().set_requires_grad(false);
    } else {
      trained.push_back(item.value());
    }
  }
  auto options = with.options;
  if (with.hook) options.hook = with.hook();
  if (with.scale > 0) options.finite_check = FiniteCheck::kReport;
  const HeapTensors heap(world);
  DataParallel ddp(net, world, options);
  torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.05).momentum(with.momentum));
  std::optional<ShardedOptimizer> sharded;
  if (with.sharded) sharded.emplace(ddp, *with.sharded, ShardedOptimizerOptions{.stage = with.stage});
  std::optional<LossScaler> scaler;
  if (with.scale > 0) scaler.emplace(ddp, LossScalerOptions{.initial_scale = with.scale, .growth_interval = 3});
  std::optional<PeriodicAverager> averager;
  if (with.average.warmup_steps > 0) averager.emplace(net->parameters(), world, with.average);
  std::vector<double> losses;
  const auto of = [&](const at::Tensor& all, int step) { return all[step][world.rank()]; };

  const auto forward_and_backward = [&](int step) {
    at::Tensor loss;
    {
      const Autocast precision(options.autocast);  // the loss, too
      loss = at::nll_loss(ddp.forward(of(batches.x, step), of(batches.rows, step), with.use_extra(step, world.rank())),
                          of(batches.y, step));
    }
    (scaler ? scaler->scale(loss) : loss).backward();
    losses.push_back(loss.item<double>());
  };
  const auto step_weights = [&] {
    if (sharded) {
      if (with.clip_norm > 0) sharded->clip_grad_norm(with.clip_norm);
      if (with.clip_value > 0) sharded->clip_grad_value(with.clip_value);
      return sharded->step();
    }
    ddp.finish();
    if (!options.delay_all_reduce_named_params.empty()) ddp.average_delayed();
    if (with.clip_norm > 0) clip_grad_norm(*net, with.clip_norm);
    if (with.clip_value > 0) clip_grad_value(*net, with.clip_value);
    if (!scaler) {
      optimizer.step();
      return;
    }
    scaler->step(optimizer);
    scaler->update();
  };
  const auto step = [&](int number) {
    if ((number + 1) % with.accumulate != 0) {
      const auto pause = ddp.no_sync();
      forward_and_backward(number);
      return;
    }
    forward_and_backward(number);
    step_weights();
    ddp.zero_grad();
    if (averager) averager->average();
  };
  if (!with.uneven) {
    for (int number = 0; number < kSteps; ++number) step(number);
    return losses;
  }
  join_uneven(
      ddp,
      [&] {
        for (int number = 0; number < kSteps - 4 * world.rank(); ++number) step(number);
      },
      with.join);
  const at::NoGradGuard no_grad;  // all have the same weights now
  net->eval();
  losses.push_back(
      at::nll_loss(net->forward(of(batches.x, 0), of(batches.rows, 0), false), of(batches.y, 0)).item<double>());
  return losses;
}

double most_apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// LibTorch 1.13 cannot multiply f16 on a CPU.
bool can_compute_in(std::optional<DType> type) {
  try {
    const Autocast precision(type);
    return true;
  } catch (const Exception& error) {
    return error.error().code != Code::kUnsupported;
  }
}

// On this rank; the cases whose losses differ, in words.
std::string compare(Group& world, const nlohmann::json& oracle, const Files& files) {
  const auto weights = SafetensorsFile::open(files.folder() + "/weights.safetensors").or_throw();
  const auto data = SafetensorsFile::open(files.folder() + "/data.safetensors").or_throw();
  const Batches batches{read(data, "x"), read(data, "y"), read(data, "rows")};
  const auto plain = oracle["plain"][std::size_t(world.rank())].get<std::vector<double>>();
  std::string wrong;
  for (const auto& [name, with] : cases()) {
    const std::string theirs = with.like.empty() ? name : with.like;
    if (!oracle.contains(theirs) || !can_compute_in(with.options.autocast)) continue;
    const auto expected = oracle[theirs][std::size_t(world.rank())].get<std::vector<double>>();
    const auto found = train(world, with, weights, batches);
    if (found.size() != expected.size()) wrong += name + ": another number of steps\n";
    const double most = most_apart(found, expected);
    const bool apart = !(most <= with.tolerance) || !std::isfinite(found.back());
    if (std::getenv("TUTTI_TEST_SHOW") && world.rank() == 0)
      std::fprintf(stderr, "%d ranks, %s: %.1e\n", world.size(), name.c_str(), most);
    if (apart) wrong += name + ": losses differ by up to " + std::to_string(most) + "\n";
    if (with.options.autocast && most_apart(found, plain) <= most) wrong += name + ": computed in f32, as it seems\n";
  }
  return wrong;
}

class TorchDdp : public testing::TestWithParam<int> {};

TEST_P(TorchDdp, GivesTheSameLosses) {
  const int ranks = GetParam();
  const std::string python = test::python_with_torch();
  if (python.empty()) GTEST_SKIP() << test::no_python_with("torch.distributed with gloo");
  const Files files;
  const auto oracle = test::answer_of(python + " " TUTTI_TORCH_DDP " " + std::to_string(ranks) + " " + files.folder());
  EXPECT_GE(oracle.size(), 32u) << "cases that this PyTorch can do";
  const auto outcomes = test::run_processes(ranks, [&](Group& world) {
    const std::string wrong = compare(world, oracle, files);
    check(wrong.empty(), wrong);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, TorchDdp, testing::Values(2, 3), testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti
