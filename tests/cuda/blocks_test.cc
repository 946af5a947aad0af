// Blocks that are measured and divided over stages and replicas train on GPUs as on the CPU.
#include <gtest/gtest.h>

#include "tests/cuda/training.h"
#include "tutti/parallel/parallelize.h"
#include "tutti/parallel/pipeline/pipeline.h"

namespace tutti::test {
namespace {

nn::Sequential make_stages(at::Device device) {
  at::manual_seed(6);
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 5), nn::Linear(5, 3));
  net->to(device, at::kDouble);
  return net;
}

TEST(TrainingOnGpus, PlansOfStagesAndReplicasTrainAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        const auto loss = [](const at::Tensor& out, const at::Tensor& target) { return at::mse_loss(out, target); };
        const auto train_on = [&](at::Device device, const BlockPlan& plan) {
          const nn::Sequential net = make_stages(device);
          DividedTraining training(world, blocks_of(net), loss, AdamWOptions{}, plan, {.clip_grad_norm = 0.05});
          Tensors results;
          for (int step = 0; step < 3; ++step) {
            const at::Tensor x = at::arange(48, at::kDouble).add(step).sin().view({8, 6}).to(device);
            results.push_back(at::scalar_tensor(training.step(x, x.narrow(1, 0, 3)), at::kDouble));
          }
          training.gather_weights();
          for (const at::Tensor& weight : net->parameters()) results.push_back(weight);
          return on_cpu(results);
        };
        for (const bool shards : {false, true}) {
          const BlockPlan plan{
              .replicas = 2, .microbatches = 2, .shards_optimizer = shards, .stages = {{0, 2}, {2, 4}}};
          check_close(train_on(gpu_of(world), plan), train_on(kCpu, plan), to_string(plan), 1e-9);
        }
      },
      4);
}

TEST(TrainingOnGpus, BlocksAreMeasuredAndDivided) {
  expect_in_world([](Group& world) {
    const auto loss = [](const at::Tensor& out, const at::Tensor& target) { return at::mse_loss(out, target); };
    const at::Tensor x = at::ones({256, 6}, at::kDouble), target = at::ones({256, 3}, at::kDouble);
    const auto measured = [&](at::Device device) {
      const nn::Sequential net = make_stages(device);
      at::manual_seed(8);
      const at::Tensor drawn = at::rand({1}, at::TensorOptions(device)).cpu();
      at::manual_seed(8);
      const BlockChain chain =
          measure_blocks(world, blocks_of(net), loss, AdamWOptions{}, x.to(device), target.to(device));
      check(at::equal(at::rand({1}, at::TensorOptions(device)).cpu(), drawn), "random numbers were drawn");
      return chain;
    };
    const BlockChain on_gpu = measured(gpu_of(world)), on_cpu = measured(kCpu);
    for (std::size_t i = 0; i < on_cpu.blocks.size(); ++i) {
      const BlockCost &mine = on_gpu.blocks[i], &expected = on_cpu.blocks[i];
      check(mine.forward.of(128) > 0 && mine.backward.of(128) > 0, "block ", i, " takes no time");
      check(mine.weight_bytes == expected.weight_bytes && mine.output_bytes == expected.output_bytes, "block ", i);
      check(mine.kept_bytes > 0, "block ", i, " keeps nothing");
      if (i + 1 == on_cpu.blocks.size()) continue;  // with the loss, whose kernels keep other tensors
      // The allocator of GPUs rounds up.
      check(mine.kept_bytes >= expected.kept_bytes && mine.kept_bytes < expected.kept_bytes + 64, "block ", i,
            " keeps ", mine.kept_bytes, " bytes a row, on the CPU ", expected.kept_bytes);
    }
    check(on_gpu.sum_start > 0 && on_gpu.message_start > 0 && on_gpu.step_seconds > 0, "no time passed");

    nn::Sequential net = make_stages(gpu_of(world));
    DividedTraining training =
        parallelize(world, blocks_of(net), loss, AdamWOptions{}, x.to(gpu_of(world)), target.to(gpu_of(world)));
    const double first = training.step(x.to(gpu_of(world)), target.to(gpu_of(world)));
    check(training.step(x.to(gpu_of(world)), target.to(gpu_of(world))) < first, "the loss does not fall");
    expect_words(sentence_of([&] { measure_blocks(world, blocks_of(net), loss, AdamWOptions{}, x, target); }),
                 "blocks can be measured on one device only: the inputs are f64[256, 6], and 0.weight is f64[8, 6] on "
                 "cuda:");
  });
}

TEST(TrainingOnGpus, BlocksOnOtherKindsOfDevicesAreNotDivided) {
  expect_in_world([](Group& world) {
    const auto loss = [](const at::Tensor& out, const at::Tensor& target) { return at::mse_loss(out, target); };
    const auto refusal = [&](const nn::Sequential& net) {
      const BlockPlan plan{.replicas = 1, .microbatches = 2, .stages = {{0, 2}, {2, 4}}};
      return sentence_of([&] { DividedTraining training(world, blocks_of(net), loss, AdamWOptions{}, plan); });
    };
    expect_words(refusal(make_stages(world.rank() == 0 ? kCpu : gpu_of(world))),
                 "the ranks have different models: tensor 1 is 0.weight f64[8, 6] on rank 0, but 0.weight f64[8, 6] on "
                 "cuda on rank 1");
    nn::Sequential half = make_stages(gpu_of(world));
    half[2]->to(kCpu);
    expect_words(refusal(half), "DividedTraining: 2.weight is f64[5, 8], other tensors are on cuda:");
  });
}

TEST(TrainingOnGpus, APipelineMayHaveStagesOnTheCpuAndOnGpus) {
  expect_in_world([](Group& world) {
    const at::Device device = world.rank() == 0 ? kCpu : gpu_of(world);
    const at::Tensor weight = at::ones({2}, at::TensorOptions(device)).requires_grad_();
    const Chunk chunk = [&](int, const at::Tensor& input) {
      return input.defined() ? (input * weight).sum() : weight * 3;
    };
    Pipeline pipeline(world, {chunk}, {.messages = {.device = device, .sizes = {2}}, .broadcast_losses = true});
    const StepResult step =
        pipeline.run(make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2}));
    check(step.losses == std::vector<double>({6, 6}), "the losses");
    check(at::equal(weight.grad().cpu(), at::full({2}, 3.0)), "the gradient of a weight");
  });
}

}  // namespace
}  // namespace tutti::test
