// Every pair of what a DataParallel can be asked for: it trains as one process does, or the table of option_pairs.cc
// has the pair and an Exception names both.
#include "tutti/parallel/data_parallel/option_pairs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <optional>

#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/data_parallel/join.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr int kPairRanks = 2, kPairSteps = 4;
constexpr double kPairRate = 0.05;

// What two options come to.
struct Asked {
  DataParallelOptions options = test::kPlain;
  std::optional<FiniteCheck> finite_check;
  int stage = 0;  // of a sharded optimizer; 0: none
  bool sparse = false, unused = false, scaler = false, no_sync = false, takes = false, joins = false;
};

// Options of one slot cannot be given together: they are values of one option.
struct Option {
  std::string name;  // as in the table, if it is there
  std::string slot;
  std::function<void(Asked&)> ask;
};

class PlainAverage final : public CommHook {
 public:
  std::string name() const override { return "plain_average"; }
  Finish start(const Group& group, const GradientBucket& bucket) override {
    auto work = all_reduce_async(group, bucket.buffer, ReduceOp::kAvg);
    return [work = std::move(work), buffer = bucket.buffer] { return work.get(), buffer; };
  }
};

const std::vector<Option>& all_options() {
  const auto checks = [](FiniteCheck check) { return [check](Asked& asked) { asked.finite_check = check; }; };
  const auto overlaps = [](Overlap overlap) { return [overlap](Asked& asked) { asked.options.overlap = overlap; }; };
  static const std::vector<Option> options = {
      {"a hook", "hook", [](Asked& a) { a.options.hook = std::make_shared<PlainAverage>(); }},
      {"gradient_as_bucket_view", "views", [](Asked& a) { a.options.gradient_as_bucket_view = true; }},
      {"find_unused_parameters", "unused", [](Asked& a) { a.options.find_unused_parameters = a.unused = true; }},
      {"static_graph", "graph", [](Asked& a) { a.options.static_graph = true; }},
      {"delayed parameters", "delayed",
       [](Asked& a) {
         a.options.delay_all_reduce_named_params = {"late.weight", "late.bias"};
       }},
      {"sparse gradients", "sparse", [](Asked& a) { a.sparse = true; }},
      {"logical_ranks", "logical", [](Asked& a) { a.options.logical_ranks = 4; }},
      {"broadcast_buffers = false", "buffers", [](Asked& a) { a.options.broadcast_buffers = false; }},
      {"autocast", "autocast", [](Asked& a) { a.options.autocast = DType::kBF16; }},
      {"ignore", "ignore", [](Asked& a) { a.options.params_and_buffers_to_ignore = {"own"}; }},
      {"Overlap::kOn", "overlap", overlaps(Overlap::kOn)},
      {"Overlap::kOff", "overlap", overlaps(Overlap::kOff)},
      {"FiniteCheck::kOff", "check", checks(FiniteCheck::kOff)},
      {"FiniteCheck::kReport", "check", checks(FiniteCheck::kReport)},
      {"FiniteCheck::kThrow", "check", checks(FiniteCheck::kThrow)},
      {"allow_empty_batches", "empty", [](Asked& a) { a.options.allow_empty_batches = true; }},
      {"small buckets", "buckets",
       [](Asked& a) {
         a.options.first_bucket_bytes = 64;
         a.options.bucket_cap_mb = mebibytes(64);
         a.options.in_place_bytes = 48;
       }},
      {"a sharded optimizer", "sharded", [](Asked& a) { a.stage = 1; }},
      {"a sharded optimizer", "sharded", [](Asked& a) { a.stage = 2; }},
      {"a LossScaler", "scaler", [](Asked& a) { a.scaler = true; }},
      {"no_sync()", "no_sync", [](Asked& a) { a.no_sync = true; }},
      {"take_gradients()", "takes", [](Asked& a) { a.takes = true; }},
      {"join_uneven()", "joins", [](Asked& a) { a.joins = true; }},
  };
  return options;
}

class PairNet : public torch::nn::Module {
 public:
  explicit PairNet(bool sparse)
      : table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 4).sparse(sparse)))),
        left(register_module("left", torch::nn::Linear(4, 3))),
        right(register_module("right", torch::nn::Linear(4, 3))),
        late(register_module("late", torch::nn::Linear(4, 3))),
        own(register_parameter("own", at::zeros({3}))),
        calls(register_buffer("calls", at::zeros({}))) {}
  at::Tensor forward(const at::Tensor& rows, bool use_right) {
    calls += 1;
    const auto x = table->forward(rows);
    const auto y = left->forward(x) + late->forward(x) + own;
    return use_right ? y + right->forward(x) : y;
  }
  torch::nn::Embedding table;
  torch::nn::Linear left, right, late;
  at::Tensor own, calls;
};

at::Tensor pair_rows(int step, int replica, int pass) {
  const std::int64_t first = 5 * step + 3 * replica + pass;
  return at::tensor({first % 6, (first + 1) % 6, (2 * first) % 6}, at::kLong);
}
bool uses_right(const Asked& asked, int step, int replica) { return !asked.unused || replica != 1 || step % 2 == 0; }
int passes_of(const Asked& asked) { return asked.no_sync ? 2 : 1; }
int steps_of(const Asked& asked, int rank) { return asked.joins && rank == 1 ? kPairSteps - 2 : kPairSteps; }
bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Gradients that finish() has averaged. Those that are delayed only add up.
void step_by_hand(PairNet& net, const Asked& asked) {
  const at::NoGradGuard no_grad;
  for (auto& named : net.named_parameters()) {
    const auto& gradient = named.value().grad();
    if (!gradient.defined() || is_in(asked.options.params_and_buffers_to_ignore, named.key()) ||
        is_in(asked.options.delay_all_reduce_named_params, named.key()))
      continue;
    named.value().sub_(gradient.is_sparse() ? gradient.to_dense() : gradient, kPairRate);
  }
}

// The weights in the end, and what the delayed gradients have come to.
std::vector<at::Tensor> results_of(PairNet& net, const Asked& asked) {
  std::vector<at::Tensor> results;
  for (const auto& named : net.named_parameters()) {
    const bool delayed = is_in(asked.options.delay_all_reduce_named_params, named.key());
    results.push_back((delayed ? named.value().grad() : named.value()).detach().clone());
  }
  return results;
}

// All replicas in one process, by LibTorch alone.
std::vector<at::Tensor> alone(const std::shared_ptr<PairNet>& net, const Asked& asked) {
  const int replicas = asked.options.logical_ranks > 0 ? asked.options.logical_ranks : kPairRanks;
  for (int step = 0; step < kPairSteps; ++step) {
    for (auto& named : net->named_parameters())
      if (!is_in(asked.options.delay_all_reduce_named_params, named.key())) named.value().mutable_grad() = at::Tensor();
    for (int replica = 0; replica < replicas; ++replica) {
      if (step >= steps_of(asked, replica)) continue;
      for (int pass = 0; pass < passes_of(asked); ++pass) {
        const auto y = net->forward(pair_rows(step, replica, pass), uses_right(asked, step, replica));
        (y.pow(2).mean() / replicas).backward();
      }
    }
    step_by_hand(*net, asked);
  }
  return results_of(*net, asked);
}

void train_one_step(const Group& world, DataParallel<PairNet>& ddp, const Asked& asked, ShardedOptimizer* sharded,
                    LossScaler* scaler, int step) {
  sharded ? sharded->zero_grad() : ddp.zero_grad();
  const auto pass = [&](int replica, int number) {
    const auto y = ddp.forward(pair_rows(step, replica, number), uses_right(asked, step, replica));
    const auto loss = y.pow(2).mean();
    (scaler ? scaler->scale(loss) : loss).backward();
  };
  if (asked.takes && asked.options.logical_ranks == 0) ddp.reducer().set_sync(false);
  for (const int replica : ddp.logical_ranks()) ddp.begin_logical_rank(replica), pass(replica, 0);
  if (asked.options.logical_ranks == 0) {
    for (int number = 0; number < passes_of(asked); ++number) {
      std::optional<DataParallel<PairNet>::NoSync> accumulating;
      if (!asked.takes && number + 1 < passes_of(asked)) accumulating.emplace(ddp.reducer());
      pass(world.rank(), number);
    }
  } else if (asked.no_sync) {
    ddp.reducer().set_sync(false);
  }
  if (asked.takes) ddp.reducer().take_gradients();
  if (sharded) {
    scaler ? void(scaler->step(*sharded)) : sharded->step();
  } else {
    ddp.finish();
    step_by_hand(ddp.module(), asked);
  }
  if (scaler) scaler->update();
}

std::vector<at::Tensor> train_on_ranks(const std::vector<std::shared_ptr<PairNet>>& nets, const Asked& asked,
                                       std::vector<test::Outcome>& outcomes) {
  std::vector<at::Tensor> results;
  outcomes = test::run_threads(
      kPairRanks,
      [&](Group& world) {
        const auto& net = nets[std::size_t(world.rank())];
        auto options = asked.options;
        if (asked.scaler) options.finite_check = FiniteCheck::kReport;
        if (asked.finite_check) options.finite_check = *asked.finite_check;
        if (options.hook) options.hook = std::make_shared<PlainAverage>();
        DataParallel ddp(net, world, options);
        std::optional<ShardedOptimizer> sharded;
        if (asked.stage > 0)
          sharded.emplace(ddp, SgdOptions{.lr = kPairRate}, ShardedOptimizerOptions{.stage = asked.stage});
        std::optional<LossScaler> scaler;  // whose scale is another one in each step
        if (asked.scaler) scaler.emplace(ddp, LossScalerOptions{.initial_scale = 1024, .growth_interval = 1});
        const auto train = [&] {
          for (int step = 0; step < steps_of(asked, world.rank()); ++step)
            train_one_step(world, ddp, asked, sharded ? &*sharded : nullptr, scaler ? &*scaler : nullptr, step);
        };
        asked.joins ? join_uneven(ddp, train) : train();
        if (!asked.options.delay_all_reduce_named_params.empty()) ddp.average_delayed();
        if (world.rank() == 0) results = results_of(*net, asked);
      },
      {.timeout = 5, .watchdog = 20});
  return results;
}

// The words that refuse the two, or nothing.
std::string refusal(const Option& one, const Option& other, const Asked& asked) {
  for (const auto& pair : data_parallel_pairs())
    if ((pair.one == one.name && pair.other == other.name) || (pair.one == other.name && pair.other == one.name))
      return std::string(pair.one) + " and " + std::string(pair.other) + " were both given";
  if (asked.scaler && asked.finite_check && *asked.finite_check != FiniteCheck::kReport)
    return "a LossScaler needs to know whether gradients are finite";
  return "";
}

TEST(DataParallelPairs, EachTrainsAsOneProcessOrIsRejected) {
  at::set_num_threads(1);
  const auto& options = all_options();
  for (std::size_t i = 0; i < options.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      if (i != j && options[i].slot == options[j].slot) continue;
      SCOPED_TRACE(options[i].name + " and " + options[j].name);
      Asked asked;
      options[i].ask(asked);
      options[j].ask(asked);
      const auto nets = test::make_models<PairNet>(kPairRanks + 1, asked.sparse);
      {
        const at::NoGradGuard no_grad;
        for (std::size_t p = 0; p < nets[0]->parameters().size(); ++p)
          nets.back()->parameters()[p].copy_(nets[0]->parameters()[p]);
      }
      std::vector<test::Outcome> outcomes;
      const auto found = train_on_ranks(nets, asked, outcomes);
      if (const auto words = refusal(options[i], options[j], asked); !words.empty()) {
        for (const auto& outcome : outcomes) EXPECT_THAT(outcome.error, ::testing::HasSubstr(words));
        continue;
      }
      EXPECT_EQ(test::describe(outcomes), "");
      const auto expected = alone(nets.back(), asked);
      ASSERT_EQ(found.size(), expected.size());
      const double tolerance = asked.options.autocast ? 3e-2 : 1e-5;
      for (std::size_t p = 0; p < found.size(); ++p)
        EXPECT_TRUE(at::allclose(found[p], expected[p], tolerance, tolerance))
            << nets[0]->named_parameters()[p].key() << "\n"
            << found[p] << "\n"
            << expected[p];
    }
  }
}

TEST(DataParallelPairs, TheTableHasOnlyOptionsThatItKnows) {
  for (const auto& pair : data_parallel_pairs())
    for (const auto name : {pair.one, pair.other}) {
      const auto named = [&](const auto& option) { return option.name == name; };
      const auto known = data_parallel_options();
      EXPECT_TRUE(std::any_of(known.begin(), known.end(), named)) << name;
      EXPECT_TRUE(std::any_of(all_options().begin(), all_options().end(), named)) << name << " is not tried";
    }
}

}  // namespace
}  // namespace tutti
