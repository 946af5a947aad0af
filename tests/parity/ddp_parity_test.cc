// N ranks, each with its part of the batch, equal one process with the whole batch: loss, every gradient, weights after
// several steps. In float64 to 1e-12, so that nothing but the order of sums can differ; in float32 to 1e-5.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <optional>
#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr int kSteps = 5;
constexpr std::int64_t kBatch = 24;  // divides by 2, 3 and 4

// A convolution, a weight large enough to be reduced where it lies, and small ones that are packed.
class Net : public torch::nn::Module {
 public:
  Net()
      : conv_(register_module("conv", torch::nn::Conv2d(1, 4, 3))),
        wide_(register_module("wide", torch::nn::Linear(4 * 10 * 10, 700))),
        out_(register_module("out", torch::nn::Linear(700, 10))) {}
  at::Tensor forward(const at::Tensor& x) {
    return at::log_softmax(out_->forward(at::tanh(wide_->forward(at::flatten(at::relu(conv_->forward(x)), 1)))), 1);
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Linear wide_, out_;
};

struct Data {
  at::Tensor pictures, labels;
};

std::vector<Data> make_data(at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(17);
  std::vector<Data> steps;
  for (int step = 0; step < kSteps; ++step) {
    steps.push_back({at::randn({kBatch, 1, 12, 12}, generator, at::kDouble).to(type),
                     at::randint(10, {kBatch}, generator, at::kLong)});
  }
  return steps;
}

std::shared_ptr<Net> make_net(at::ScalarType type, std::uint64_t seed = 5) {
  at::manual_seed(seed);
  auto net = std::make_shared<Net>();
  net->to(type);
  return net;
}

struct Trace {
  std::vector<double> losses;
  std::vector<std::map<std::string, at::Tensor>> gradients;  // by step
  std::map<std::string, at::Tensor> weights;                 // at the end
};

void note_gradients(Trace& trace, Net& net) {
  auto& now = trace.gradients.emplace_back();
  for (const auto& item : net.named_parameters()) now[item.key()] = item.value().grad().clone();
}
void note_weights(Trace& trace, Net& net) {
  for (const auto& item : net.named_parameters()) trace.weights[item.key()] = item.value().detach().clone();
}

Trace train_alone(at::ScalarType type, int accumulate) {
  auto net = make_net(type);
  Sgd optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  Trace trace;
  int step = 0;
  for (const auto& data : make_data(type)) {
    auto loss = at::nll_loss(net->forward(data.pictures), data.labels);
    loss.backward();
    trace.losses.push_back(loss.item<double>());
    if (++step % accumulate != 0) continue;
    note_gradients(trace, *net);
    optimizer.step();
    optimizer.zero_grad();
  }
  note_weights(trace, *net);
  return trace;
}

Trace train_together(Group& world, std::shared_ptr<Net> net, at::ScalarType type, const DataParallelOptions& options,
                     int accumulate, bool zero_in_place, bool heap) {
  std::optional<HeapTensors> heap_tensors;
  if (heap) heap_tensors.emplace(world);
  DataParallel ddp(net, world, options);
  Sgd optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  Trace trace;
  int step = 0;
  for (const auto& data : make_data(type)) {
    const auto mine = kBatch / world.size(), begin = mine * world.rank();
    at::Tensor loss;
    auto run = [&] {
      loss = at::nll_loss(ddp.forward(data.pictures.narrow(0, begin, mine)), data.labels.narrow(0, begin, mine));
      loss.backward();
      ddp.finish();
    };
    const bool last = ++step % accumulate == 0;
    if (last) {
      run();
    } else {
      const auto pause = ddp.no_sync();
      run();
    }
    trace.losses.push_back(all_reduce(world, loss.item<double>()) / world.size());
    if (!last) continue;
    note_gradients(trace, *net);
    optimizer.step();
    if (zero_in_place) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad().detach_().zero_();
    } else {
      ddp.zero_grad();
    }
  }
  note_weights(trace, *net);
  return trace;
}

void check_close(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected,
                 double tolerance, const std::string& what) {
  for (const auto& [name, tensor] : expected) {
    const double apart = (found.at(name) - tensor).abs().max().item<double>();
    test::check(apart <= tolerance, what, " of ", name, " differs by ", apart * 1e12, "e-12");
  }
}

void check_same(const Trace& found, const Trace& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    test::check(std::abs(found.losses[i] - expected.losses[i]) <= tolerance, "loss of step ", i, ": ", found.losses[i],
                " expected ", expected.losses[i]);
  }
  test::check(found.gradients.size() == expected.gradients.size(), "steps");
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    check_close(found.gradients[i], expected.gradients[i], tolerance, "step " + std::to_string(i) + ": gradient");
  check_close(found.weights, expected.weights, tolerance, "the trained weight");
}

struct Case {
  const char* name;
  int ranks;
  at::ScalarType type = at::kDouble;
  DataParallelOptions options = {};
  int accumulate = 1;
  bool zero_in_place = false;
  bool heap = true;  // gradients are where peers read them
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class DataParallelParity : public testing::TestWithParam<Case> {};

TEST_P(DataParallelParity, RanksEqualOneProcess) {
  const auto& param = GetParam();
  const double tolerance = param.type == at::kDouble ? 1e-12 : 1e-5;
  const auto body = [&](Group& world, std::shared_ptr<Net> net, const Trace& expected) {
    const auto trace = train_together(world, std::move(net), param.type, param.options, param.accumulate,
                                      param.zero_in_place, param.heap);
    check_same(trace, expected, tolerance);
  };
  // Forked ranks: nothing of LibTorch has run in this process before.
  const auto outcomes = test::run_processes(param.ranks, [&](Group& world) {
    at::set_num_threads(1);
    const auto expected = train_alone(param.type, param.accumulate);
    body(world, make_net(param.type, world.rank() == 0 ? 5 : 6), expected);  // rank 0's weights count
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(
    , DataParallelParity,
    testing::Values(Case{"two_f64", 2}, Case{"three_f64", 3}, Case{"four_f64", 4}, Case{"two_f32", 2, at::kFloat},
                    Case{"four_f32", 4, at::kFloat}, Case{"views", 2, at::kDouble, {.gradient_as_bucket_view = true}},
                    Case{"views_zeroed_in_place", 3, at::kDouble, {.gradient_as_bucket_view = true}, 1, true},
                    Case{"zeroed_in_place", 2, at::kDouble, {}, 1, true},
                    Case{"overlapped", 3, at::kDouble, {.overlap = Overlap::kOn}},
                    Case{"not_overlapped", 2, at::kDouble, {.overlap = Overlap::kOff}},
                    Case{"many_buckets",
                         2,
                         at::kDouble,
                         {.first_bucket_bytes = 1, .bucket_cap_mb = mebibytes(1), .overlap = Overlap::kOn}},
                    Case{"everything_packed", 3, at::kDouble, {.in_place_bytes = std::size_t(1) << 40}},
                    Case{"nothing_packed", 3, at::kDouble, {.in_place_bytes = 0}},
                    Case{"without_heap", 2, at::kDouble, {}, 1, false, false},
                    Case{"accumulated", 2, at::kDouble, {.overlap = Overlap::kOn}, 2},
                    Case{"accumulated_views", 3, at::kDouble, {.gradient_as_bucket_view = true}, 5}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti
