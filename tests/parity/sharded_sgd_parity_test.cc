// ShardedSgd equals Sgd after DataParallel::finish(): to the bit where the ranks share memory, else to the rounding of
// the sums; and each rank keeps its part of the momentum only.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/parallel/ddp/data_parallel.h"
#include "tutti/parallel/optim/sgd.h"
#include "tutti/parallel/optim/sharded_sgd.h"

namespace tutti {
namespace {

constexpr int kSteps = 4;
constexpr std::int64_t kBatch = 6;  // of a rank

// Odd sizes: no part divides, and tails differ in length. The first two weights are large enough for LibTorch to make
// their gradients in the group's memory.
class Net : public torch::nn::Module {
 public:
  Net()
      : in_(register_module("in", torch::nn::Linear(97, 301))),
        sometimes_(register_module("sometimes", torch::nn::Linear(301, 301))),
        out_(register_module("out", torch::nn::Linear(301, 3))) {}
  at::Tensor forward(const at::Tensor& x, bool with_all) {
    at::Tensor hidden = at::tanh(in_->forward(x));
    if (with_all) hidden = at::tanh(sometimes_->forward(hidden));
    return out_->forward(hidden);
  }

 private:
  torch::nn::Linear in_, sometimes_, out_;
};

struct Case {
  const char* name;
  int ranks;
  at::ScalarType type = at::kFloat;
  DataParallelOptions parallel = {.in_place_bytes = 4096};
  SgdOptions sgd = {.lr = 0.1, .momentum = 0.9};
  test::WorldOptions world = {};
  double tolerance = 0;
  bool has_large = true;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::shared_ptr<Net> make_net(at::ScalarType type) {
  at::manual_seed(11);
  auto net = std::make_shared<Net>();
  net->to(type);
  return net;
}

// Every third step leaves a layer out on all ranks, every other one on rank 0 alone, where that is allowed.
template <class Step, class Zero>
void train(const Group& world, DataParallel<Net>& ddp, const Case& param, const Step& step, const Zero& zero) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(world.rank() + 1));
  for (int k = 0; k < kSteps; ++k) {
    const bool leave_out = param.parallel.find_unused && (k % 3 == 2 || (k % 2 == 1 && world.rank() == 0));
    const auto x = at::randn({kBatch, 97}, generator, at::kDouble).to(param.type);
    ddp.forward(x, !leave_out).square().mean().backward();
    step();
    zero();
  }
}

class ShardedSgdParity : public testing::TestWithParam<Case> {};

TEST_P(ShardedSgdParity, EqualsSgd) {
  const auto& param = GetParam();
  const auto outcomes = test::run_processes(
      param.ranks,
      [&](Group& world) {
        at::set_num_threads(1);
        const auto plain = make_net(param.type), sharded = make_net(param.type);
        std::size_t plain_bytes = 0, sharded_bytes = 0;
        {
          DataParallel ddp(plain, world, param.parallel);
          Sgd optimizer(plain->parameters(), param.sgd);
          train(
              world, ddp, param, [&] { ddp.finish(), optimizer.step(); }, [&] { ddp.zero_grad(); });
          plain_bytes = optimizer.state_bytes();
        }
        {
          DataParallel ddp(sharded, world, param.parallel);
          ShardedSgd optimizer(ddp, param.sgd);
          train(
              world, ddp, param, [&] { optimizer.step(); }, [&] { optimizer.zero_grad(); });
          sharded_bytes = optimizer.state_bytes();
        }
        const auto found = sharded->named_parameters(), expected = plain->named_parameters();
        for (const auto& item : expected) {
          const double apart = (found[item.key()] - item.value()).abs().max().item<double>();
          test::check(apart <= param.tolerance, item.key(), " differs by ", apart * 1e12, "e-12");
        }
        const std::size_t small = 64 << 10;
        test::check(!param.has_large || sharded_bytes <= plain_bytes / std::size_t(world.size()) + small,
                    "momentum takes ", sharded_bytes, " bytes, of Sgd ", plain_bytes);
      },
      param.world);
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(
    , ShardedSgdParity,
    testing::Values(Case{"alone", 1}, Case{"two", 2}, Case{"three", 3}, Case{"four", 4},
                    Case{"three_f64", 3, at::kDouble},
                    Case{"nesterov_and_decay",
                         2,
                         at::kFloat,
                         {.in_place_bytes = 4096},
                         {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
                    Case{"all_large_even_biases", 4, at::kFloat, {.in_place_bytes = 0}},
                    Case{"overlapped", 2, at::kFloat, {.in_place_bytes = 4096, .overlap = Overlap::kOn}},
                    Case{"unused", 3, at::kFloat, {.in_place_bytes = 4096, .find_unused = true}},
                    Case{"views",
                         2,
                         at::kFloat,
                         {.in_place_bytes = std::size_t(1) << 40, .gradients_as_views = true},
                         {.lr = 0.1, .momentum = 0.9},
                         {},
                         0,
                         false},
                    Case{"private_gradients",
                         3,
                         at::kDouble,
                         {.in_place_bytes = 4096, .heap_tensors = false},
                         {.lr = 0.1, .momentum = 0.9},
                         {},
                         1e-13},
                    Case{"over_links",
                         3,
                         at::kDouble,
                         {.in_place_bytes = 4096},
                         {.lr = 0.1, .momentum = 0.9},
                         {.transport = "tcp"},
                         1e-13}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedSgd, GradientsThatAreTooEarlyOrTwoOptimizersGetASentence) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    const auto net = make_net(at::kFloat);
    DataParallel ddp(net, world);
    ShardedSgd optimizer(ddp, {});
    const auto words_of = [](const auto& act) -> std::string {
      try {
        act();
      } catch (const Exception& e) {
        return e.what();
      }
      return "";
    };
    const auto says = [&](const auto& act, const char* expected) {
      const std::string words = words_of(act);
      test::check(words.find(expected) != std::string::npos, words);
    };
    says([&] { ShardedSgd second(ddp, {}); }, "has a sharded optimizer already");
    says([&] { optimizer.step(); }, "found no gradient of this step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
