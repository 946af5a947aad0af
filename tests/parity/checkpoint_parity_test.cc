// What was saved by any number of ranks in any way of sharding is what any other number finds in any other way, to the
// last bit of weights and of what the optimizer keeps.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

enum class Way { kWhole, kStage1, kStage2, kStage3 };
constexpr Way kWays[] = {Way::kWhole, Way::kStage1, Way::kStage2, Way::kStage3};

// Running means of BatchNorm differ between ranks after a step.
torch::nn::Sequential make_net_with_statistics() {
  torch::manual_seed(5);
  return torch::nn::Sequential(torch::nn::Linear(9, 37), torch::nn::BatchNorm1d(37), torch::nn::ReLU(),
                               torch::nn::Linear(37, 5));
}

torch::nn::Sequential make_net() {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(9, 37), torch::nn::ReLU(), torch::nn::Linear(37, 5));
  net->register_buffer("seen", at::arange(3, at::kLong));
  return net;
}

// A model that trains in one of the ways.
class Trained {
 public:
  Trained(const Group& world, Way way, torch::nn::Sequential net = make_net()) : world_(world), net_(std::move(net)) {
    const UpdateRule rule = AdamOptions{.lr = 0.02};
    if (way == Way::kStage3) {
      fully_ = std::make_unique<FullySharded<torch::nn::SequentialImpl>>(net_, world);
      sharded_ = std::make_unique<ShardedOptimizer>(*fully_, rule);
      return;
    }
    ddp_ = std::make_unique<DataParallel<torch::nn::SequentialImpl>>(net_.ptr(), world,
                                                                     DataParallelOptions{.in_place_bytes = 1024});
    if (way == Way::kWhole) {
      whole_ = std::make_unique<Optimizer>(*net_, rule);
    } else {
      sharded_ = std::make_unique<ShardedOptimizer>(*ddp_, rule, ShardedOptimizerOptions{way == Way::kStage2 ? 2 : 1});
    }
  }
  void step(int k) {
    const auto x = at::full({4, 9}, 0.1 * (k + 1 + world_.rank()));
    (fully_ ? fully_->forward(x) : ddp_->forward(x)).square().mean().backward();
    if (whole_) {
      ddp_->finish();
      whole_->step();
      ddp_->zero_grad();
    } else {
      sharded_->step();
      sharded_->zero_grad();
    }
  }
  void save(const std::string& folder, std::int64_t step) {
    StateDict dict(StateUse::kSave);
    dict.facts().step = step;
    state(dict);
    save_checkpoint(world_, folder, dict).or_throw();
  }
  void load(const std::string& folder) {
    const auto reader = CheckpointReader::open(world_, folder).or_throw();
    StateDict dict(StateUse::kLoad);
    state(dict);
    dict.load(world_, reader).or_throw();
  }

  const torch::nn::Sequential& net() const { return net_; }

 private:
  void state(StateDict& dict) {
    if (fully_)
      dict.add("model", *fully_);
    else
      dict.add("model", net_);
    if (whole_) {
      dict.add("optimizer", *whole_);
    } else {
      dict.add("optimizer", *sharded_);
    }
  }

  const Group& world_;
  torch::nn::Sequential net_;
  std::unique_ptr<DataParallel<torch::nn::SequentialImpl>> ddp_;
  std::unique_ptr<FullySharded<torch::nn::SequentialImpl>> fully_;
  std::unique_ptr<Optimizer> whole_;
  std::unique_ptr<ShardedOptimizer> sharded_;
};

// Every tensor of a checkpoint, as bytes.
std::map<TensorKey, std::string> contents(const std::string& folder) {
  const auto saved = CheckpointReader::open(folder).or_throw();
  std::map<TensorKey, std::string> found;
  for (const auto& [key, tensor] : saved.manifest().tensors) {
    std::string bytes(*elements_of(tensor.shape) * size_of(tensor.dtype), '\0');
    saved.read(key, std::as_writable_bytes(std::span(bytes))).or_throw();
    found.emplace(key, std::move(bytes));
  }
  return found;
}

TEST(CheckpointsOfTraining, AnyRanksAndWayToAnyOther) {
  const test::TemporaryFolder folder;
  const auto place = [&](int ranks, Way way) {
    return folder.path() + "/" + std::to_string(ranks) + "-" + std::to_string(int(way));
  };
  for (const int ranks : {1, 2, 3, 4}) {
    const auto outcomes = test::run_processes(ranks, [&](Group& world) {
      at::set_num_threads(1);
      for (const Way way : kWays) {
        Trained trained(world, way);
        for (int k = 0; k < 2; ++k) trained.step(k);
        trained.save(place(ranks, way), 2);
      }
    });
    ASSERT_EQ(test::describe(outcomes), "") << ranks;
  }
  for (const int ranks : {1, 2, 3, 4}) {
    const auto outcomes = test::run_processes(ranks, [&](Group& world) {
      at::set_num_threads(1);
      for (const int saved_by : {1, 2, 3, 4})
        for (const Way saved_in : kWays)
          for (const Way way : {saved_in, Way((int(saved_in) + saved_by) % 4)}) {
            const std::string again = folder.path() + "/again" + std::to_string(ranks);
            Trained trained(world, way);
            trained.step(7);  // there is other state already
            trained.load(place(saved_by, saved_in));
            trained.save(again, 2);
            if (world.rank() != 0) continue;
            test::check(contents(again) == contents(place(saved_by, saved_in)), "saved by ", saved_by, " ranks in way ",
                        int(saved_in), ", loaded in way ", int(way));
          }
    });
    ASSERT_EQ(test::describe(outcomes), "") << ranks;
  }
  const auto one = contents(place(2, Way::kStage1));
  EXPECT_EQ(one.size(), 5 + 3 * 4u) << "four weights with exp_avg, exp_avg_sq and step each, and a buffer";
}

TEST(CheckpointsOfTraining, BuffersAreThoseOfTheFirstRank) {
  const test::TemporaryFolder folder;
  for (const int ranks : {2, 3}) {
    const auto outcomes = test::run_processes(ranks, [&](Group& world) {
      at::set_num_threads(1);
      for (const Way way : kWays) {
        const std::string place = folder.path() + "/" + std::to_string(ranks) + "-" + std::to_string(int(way));
        Trained trained(world, way, make_net_with_statistics());
        for (int k = 0; k < 2; ++k) trained.step(k);
        trained.save(place, 2);
        Trained resumed(world, way, make_net_with_statistics());
        resumed.load(place);
        const auto check_equal = [&](std::vector<NamedTensor> (*those_of)(const torch::nn::Module&), const char* when) {
          const auto tensors = those_of(*trained.net()), others = those_of(*resumed.net());
          for (std::size_t i = 0; i < tensors.size(); ++i)
            test::check(at::equal(tensors[i].tensor, others[i].tensor), tensors[i].name, " in way ", int(way), when);
        };
        if (world.rank() == 0) check_equal(buffers_of, ", loaded");
        if (way == Way::kStage3) continue;  // there each rank continues with buffers of its own
        trained.step(2);
        resumed.step(2);
        check_equal(tensors_of, ", a step later");
      }
    });
    ASSERT_EQ(test::describe(outcomes), "") << ranks;
  }
}

TEST(CheckpointsOfTraining, AnotherModelOrOptimizerIsNamed) {
  const test::TemporaryFolder folder;
  const auto net = make_net();
  Optimizer adam(*net, AdamOptions{});
  StateDict saved(StateUse::kSave);
  saved.add("model", net);
  saved.add("optimizer", adam);
  save_checkpoint(Group(), folder.path(), saved).or_throw();
  const auto why = [&](const torch::nn::Sequential& model, Optimizer& optimizer) {
    StateDict dict(StateUse::kLoad);
    dict.add("model", model);
    dict.add("optimizer", optimizer);
    return to_string(dict.load(Group(), CheckpointReader::open(folder.path()).or_throw()).error());
  };
  const torch::nn::Sequential wider(torch::nn::Linear(9, 38));
  EXPECT_THAT(why(wider, adam), testing::HasSubstr("0.weight is f32[37, 9], wanted f32[38, 9]"));
  const torch::nn::Sequential longer(torch::nn::ReLU(), torch::nn::ReLU(), torch::nn::ReLU(), torch::nn::Linear(2, 2));
  EXPECT_THAT(why(longer, adam), testing::HasSubstr("it lacks 3.weight, 3.bias"));
  Optimizer sgd(*net, SgdOptions{.lr = 0.1, .momentum = 0.9});
  EXPECT_THAT(why(net, sgd), testing::HasSubstr("it has more: exp_avg of 0.bias, exp_avg_sq of 0.bias"));
}

// A tensor that lies otherwise in memory comes out as it went in.
TEST(CheckpointsOfTraining, TensorsThatAreNotContiguous) {
  const test::TemporaryFolder folder;
  struct Odd : torch::nn::Module {
    explicit Odd(double shift) {
      turned = register_buffer("turned", (at::arange(12, at::kFloat).view({3, 4}) + shift).t());
      number = register_buffer("number", at::full({}, 5 + shift, at::kDouble));
    }
    at::Tensor turned, number;
  };
  const Odd odd(0), other(100);
  ASSERT_FALSE(other.turned.is_contiguous());
  StateDict saved(StateUse::kSave), loaded(StateUse::kLoad);
  saved.add("model", odd);
  loaded.add("model", other);
  save_checkpoint(Group(), folder.path(), saved).or_throw();
  loaded.load(Group(), CheckpointReader::open(folder.path()).or_throw()).or_throw();
  EXPECT_TRUE(at::equal(odd.turned, other.turned));
  EXPECT_TRUE(at::equal(odd.number, other.number));
}

}  // namespace
}  // namespace tutti
