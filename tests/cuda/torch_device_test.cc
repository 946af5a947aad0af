// The double of LibTorch's CUDA device (tests/fakes/cuda/torch_device.h): it computes what the CPU computes, and code
// that would be wrong on a GPU is wrong on it.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fakes/cuda/cudart.h"

namespace tutti::test {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

const at::Device kCpu(at::kCPU), kGpu(at::kCUDA, 0);

c10::Stream current_stream() { return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(kGpu); }
c10::Stream other_stream() { return c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(kGpu); }
void wait_for(c10::Stream stream) { c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeStream(stream); }

// What stream `first` has been given comes before what `second` will be given.
void order(c10::Stream first, c10::Stream second) {
  c10::Event event(at::kCUDA);
  event.record(first);
  event.block(second);
}

// The bytes that are there now, whether or not anybody has waited for them.
float first_now(const at::Tensor& tensor) {
  float value = 0;
  std::memcpy(&value, fake_cuda_bytes(tensor.data_ptr()), sizeof value);
  return value;
}

// No block of these has been used before, so it is full of poison.
at::Tensor fresh(float value) {
  static std::int64_t count = 100'000;
  return at::full({count += 1000}, value, kGpu);
}

template <class Act>
int host_waits_of(const Act& act) {
  const auto before = fake_cuda_host_waits(0);
  act();
  return int(fake_cuda_host_waits(0) - before);
}

void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  ASSERT_EQ(x.sizes(), y.sizes()) << what;
  ASSERT_EQ(x.scalar_type(), y.scalar_type()) << what;
  EXPECT_EQ(std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()), 0) << what << ":\n" << x << "\n" << y;
}

// `act` gives the same on both devices, and its results are where its inputs are.
void expect_same_on_both(const std::string& what, const std::function<Tensors(at::Device)>& act) {
  SCOPED_TRACE(what);
  Tensors results[2];
  for (const at::Device device : {kCpu, kGpu}) {
    at::manual_seed(3);
    results[device.is_cuda()] = act(device);
    for (const at::Tensor& result : results[device.is_cuda()]) EXPECT_EQ(result.device(), device);
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (std::size_t i = 0; i < results[0].size(); ++i)
    expect_same_bits(results[0][i], results[1][i], what + ", result " + std::to_string(i));
}

// The output, and the gradients of the sum of its squares.
Tensors with_gradients(const at::Tensor& output, Tensors of) {
  Tensors all = torch::autograd::grad({(output * output).sum()}, of);
  all.push_back(output.detach());
  return all;
}
template <class Module>
Tensors run_module(Module module, const at::Tensor& input, at::Device device) {
  module->to(device);
  Tensors of = module->parameters();
  of.push_back(input.to(device).requires_grad_());
  Tensors all = with_gradients(module->forward(of.back()), of);
  for (const at::Tensor& buffer : module->buffers()) all.push_back(buffer);
  return all;
}

template <class Optimizer, class Options>
Tensors train(at::Device device, const Options& options) {
  nn::Sequential net(nn::Linear(20, 32), nn::ReLU(), nn::Linear(32, 10));
  const at::Tensor x = at::randn({16, 20}).to(device), y = at::randint(10, {16}, at::kLong).to(device);
  net->to(device);
  Optimizer optimizer(net->parameters(), options);
  Tensors results;
  const int waits = host_waits_of([&] {
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = nn::functional::cross_entropy(net->forward(x), y);
      loss.backward();
      optimizer.step();
      results.push_back(loss.detach());
    }
  });
  EXPECT_EQ(waits, 0);
  for (const at::Tensor& parameter : net->parameters()) results.push_back(parameter.detach());
  return results;
}

TEST(TorchDevice, TrainsToTheBitsOfTheCpuWithoutWaiting) {
  expect_same_on_both("SGD", [](at::Device device) {
    return train<torch::optim::SGD>(device, torch::optim::SGDOptions(0.1).momentum(0.9));
  });
  expect_same_on_both(
      "AdamW", [](at::Device device) { return train<torch::optim::AdamW>(device, torch::optim::AdamWOptions(0.01)); });
}

TEST(TorchDevice, ModulesHaveTheBitsOfTheCpu) {
  expect_same_on_both("attention", [](at::Device device) {
    nn::MultiheadAttention attention(16, 4);
    attention->to(device);
    const at::Tensor x = at::randn({5, 2, 16}).to(device);
    return with_gradients(std::get<0>(attention->forward(x, x, x)), attention->parameters());
  });
  expect_same_on_both("LayerNorm", [](at::Device device) {
    return run_module(nn::LayerNorm(nn::LayerNormOptions({8})), at::randn({4, 8}), device);
  });
  expect_same_on_both("Conv2d", [](at::Device device) {
    return run_module(nn::Conv2d(nn::Conv2dOptions(4, 8, 3).stride(2).groups(2)), at::randn({2, 4, 9, 9}), device);
  });
  expect_same_on_both("BatchNorm2d", [](at::Device device) {
    return run_module(nn::BatchNorm2d(3), at::randn({2, 3, 8, 8}), device);
  });
  expect_same_on_both("MaxPool2d", [](at::Device device) {
    return run_module(nn::MaxPool2d(2), at::randn({2, 3, 8, 8}), device);
  });
  expect_same_on_both("Embedding", [](at::Device device) {
    nn::Embedding table(10, 4);
    table->to(device);
    return with_gradients(table->forward(at::randint(10, {3, 5}, at::kLong).to(device)), table->parameters());
  });
  expect_same_on_both("sparse gradients", [](at::Device device) -> Tensors {
    nn::Embedding table(nn::EmbeddingOptions(10, 4).sparse(true));
    table->to(device);
    const at::Tensor rows = at::randint(10, {3, 5}, at::kLong).to(device);
    for (int i = 0; i < 2; ++i) table->forward(rows).square().sum().backward();
    const at::Tensor sum = table->weight.grad().coalesce();
    return {sum._indices(), sum._values(), sum.to_dense(), sum.cpu().to(device).to_dense()};
  });
  expect_same_on_both("dropout", [](at::Device device) {
    const at::Tensor x = at::ones({64, 64}, device).requires_grad_();  // drawn first: each device has its generator
    return with_gradients(at::dropout(x, 0.1, true), {x});
  });
}

TEST(TorchDevice, OperatorsHaveTheBitsOfTheCpu) {
  expect_same_on_both("indices, joins, parts", [](at::Device device) -> Tensors {
    const at::Tensor x = at::randn({4, 6}).to(device), i = at::tensor({0, 2, 2}, at::kLong).to(device);
    const at::Tensor mask = x > 0;
    Tensors parts = x.split(2, 1);
    parts.insert(parts.end(), {x.index({i}), x.index({mask}), at::masked_select(x, mask), at::nonzero(mask),
                               x.gather(1, i.view({1, 3})), at::cat({x, x}, 1), at::stack(x.unbind(0), 1)});
    return parts;
  });
  expect_same_on_both("views and writes through them", [](at::Device device) -> Tensors {
    at::Tensor x = at::zeros({4, 6}, device);
    const at::Tensor part = x.view({24}).narrow(0, 3, 5);
    part.add_(1).mul_(2);
    x.t().select(0, 0).fill_(9);
    x.unfold(1, 4, 2).mul_(3);
    x.index_put_({at::tensor({1}, at::kLong).to(device)}, at::ones({}, device), true);
    return {x, part, x.t().reshape({-1}), x.expand({2, 4, 6})};
  });
  expect_same_on_both("lists", [](at::Device device) {
    Tensors sums = at::_foreach_add({at::ones({3}, device), at::ones({2, 2}, device)}, 2.0);
    at::_foreach_mul_(sums, sums);
    return sums;
  });
  expect_same_on_both("outputs that are resized", [](at::Device device) -> Tensors {
    at::Tensor sum = at::empty({0}, device), larger = at::ones({2}, device), part = at::empty({0}, device);
    at::add_out(sum, larger, larger);
    part.set_(larger.resize_({5}).fill_(2).storage(), 1, {2}, {2});
    return {sum, larger, part};
  });
  expect_same_on_both("types", [](at::Device device) -> Tensors {
    const at::Tensor x = at::randn({4, 4}).to(device), z = at::complex(x, x.t());
    return {x.to(at::kBFloat16).mm(x.to(at::kBFloat16)), x.to(at::kHalf), x.to(at::kDouble).sum(), z * z.conj()};
  });
  expect_same_on_both("random numbers", [](at::Device device) -> Tensors {
    const auto options = at::TensorOptions(device);
    return {at::randn({7}, options), at::empty({9}, options).bernoulli_(0.3), at::randperm(5, options.dtype(at::kLong)),
            at::multinomial(at::ones({4}, options), 2)};
  });
  expect_same_on_both("serialised modules", [](at::Device device) {
    nn::Linear saved(4, 4), loaded(4, 4);
    saved->to(device);
    std::stringstream file;
    torch::save(saved, file);
    torch::load(loaded, file);
    return loaded->parameters();
  });
}

TEST(TorchDevice, GeneratorsKeepTheirState) {
  at::Generator generator = at::globalContext().defaultGenerator(kGpu).clone();
  const at::Tensor state = generator.get_state(), a = at::empty({8}, kGpu).normal_(0, 1, generator);
  generator.set_state(state);
  expect_same_bits(a, at::empty({8}, kGpu).normal_(0, 1, generator), "drawn again");
}

TEST(TorchDevice, ResultsAppearWhenTheirStreamIsAwaited) {
  const at::Tensor sum = fresh(1) + 2;
  EXPECT_TRUE(std::isnan(first_now(sum)));
  wait_for(other_stream());  // not this one
  EXPECT_TRUE(std::isnan(first_now(sum)));
  wait_for(current_stream());
  EXPECT_EQ(first_now(sum), 3);
}

TEST(TorchDevice, AStreamThatForgetsAnEventReadsPoison) {
  for (const bool forgets : {true, false}) {
    const c10::Stream main = current_stream(), side = other_stream();
    const at::Tensor x = fresh(1);
    at::Tensor y;
    if (!forgets) order(main, side);
    {
      const c10::StreamGuard on_side(side);
      y = x * 2;
    }
    order(side, main);
    EXPECT_EQ(std::isnan((y + 0)[0].item<float>()), forgets);
  }
}

TEST(TorchDevice, CopiesThatDoNotBlockAreLate) {
  const at::Tensor source = at::ones({1000}).pin_memory();
  ASSERT_TRUE(source.is_pinned());
  at::Tensor there, back;
  EXPECT_EQ(host_waits_of([&] {
              there = source.to(kGpu, at::kFloat, /*non_blocking=*/true);
              back = there.to(kCpu, at::kFloat, /*non_blocking=*/true);
            }),
            0);
  source.fill_(5);  // too early
  EXPECT_TRUE(std::isnan(back[0].item<float>()));
  wait_for(current_stream());
  EXPECT_EQ(back[0].item<float>(), 5);
}

TEST(TorchDevice, PageableMemoryMakesCopiesBlock) {
  at::Tensor there;
  EXPECT_EQ(host_waits_of([&] { there = at::ones({10}).to(kGpu, at::kFloat, /*non_blocking=*/true); }), 1);
  EXPECT_EQ(host_waits_of([&] { EXPECT_EQ(there.cpu()[3].item<float>(), 1); }), 1);
}

TEST(TorchDevice, FreedMemoryServesItsOwnStreamAtOnceAndNoOther) {
  at::Tensor x = fresh(1);
  const auto count = x.numel();
  const void* const place = x.data_ptr();
  x.reset();
  {
    const c10::StreamGuard on_side(other_stream());
    EXPECT_NE(at::empty({count}, kGpu).data_ptr(), place);
  }
  const at::Tensor again = at::empty({count}, kGpu);
  EXPECT_EQ(again.data_ptr(), place);
  wait_for(current_stream());
  EXPECT_TRUE(std::isnan(first_now(again)));
}

// A side stream reads memory that the main stream frees.
TEST(TorchDevice, MemoryThatIsFreedTooEarlyIsPoisonUnlessItWasRecorded) {
  for (const bool recorded : {false, true}) {
    const c10::Stream main = current_stream(), side = other_stream();
    at::Tensor x = fresh(1), y;
    const auto count = x.numel();
    const void* const place = x.data_ptr();
    order(main, side);
    {
      const c10::StreamGuard on_side(side);
      y = x * 2;
    }
    if (recorded) x.record_stream(side);
    x.reset();
    EXPECT_EQ(at::empty({count}, kGpu).data_ptr() == place, !recorded);
    wait_for(main);
    wait_for(side);
    EXPECT_EQ(first_now(y) == 2, recorded) << first_now(y);
    const at::Tensor a = at::empty({count}, kGpu), b = at::empty({count}, kGpu);
    EXPECT_TRUE(a.data_ptr() == place || b.data_ptr() == place);  // it serves again
  }
}

TEST(TorchDevice, WhatMakesTheHostWaitIsCounted) {
  const at::Tensor x = at::ones({4}, kGpu);
  EXPECT_EQ(host_waits_of([&] { (void)(x * x).sum(); }), 0);
  EXPECT_EQ(host_waits_of([&] { (void)x.sum().item<float>(); }), 1);
  EXPECT_EQ(host_waits_of([&] { (void)at::nonzero(x); }), 1);
  EXPECT_EQ(host_waits_of([&] { (void)x.index({x > 0}); }), 1);
  EXPECT_EQ(host_waits_of([&] { (void)at::equal(x, x); }), 1);
  EXPECT_EQ(host_waits_of([&] { wait_for(current_stream()); }), 1);
}

TEST(TorchDevice, AnErrorOfAKernelBreaksItsDevice) {
  const at::Device other(at::kCUDA, 5);
  const at::Tensor picked = at::ones({3}, other).index({at::tensor({7}, at::kLong).to(other)});
  for (int i = 0; i < 2; ++i) {
    try {
      picked.cpu();
      ADD_FAILURE() << "no error";
    } catch (const c10::Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("device-side assert triggered on cuda:5: index 7 is out of bounds"));
    }
  }
  EXPECT_EQ(at::ones({2}, kGpu).sum().item<float>(), 2);
}

TEST(TorchDevice, ErrorsOfACallAreThrownByIt) {
  EXPECT_THROW(at::ones({3}, kGpu) + at::ones({2}, kGpu), c10::Error);
  EXPECT_THROW(at::ones({3}, kGpu) + at::ones({3}), c10::Error);
  EXPECT_THROW(at::ones({3}, kGpu) + at::ones({3}, at::Device(at::kCUDA, 1)), c10::Error);
  EXPECT_EQ((at::ones({3}, kGpu) + at::scalar_tensor(2.0)).sum().item<float>(), 9);  // a number of the host
}

TEST(TorchDevice, TensorsMoveBetweenDevices) {
  const at::Tensor x = at::ones({3}, kGpu) * 2, y = x.to(at::Device(at::kCUDA, 1)) * 3;
  EXPECT_EQ((y.to(kGpu) + x).sum().item<float>(), 24);
}

TEST(TorchDeviceDeathTest, TheHostCannotTouchMemoryOfTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const at::Tensor x = at::ones({3}, kGpu);
  EXPECT_DEATH(*x.data_ptr<float>() = 1, "");
}

}  // namespace
}  // namespace tutti::test
