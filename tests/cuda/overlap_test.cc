// Calls of a group run beside the kernels of a pass. Kernels that wait for a call stand on the stream of the pass: they
// come to their end only if the call does not wait for what is behind them. Only on the double, whose copies are
// counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/training.h"
#include "tests/fakes/cuda/cudart.h"
#include "tests/fakes/cuda/torch_device.h"
#include "tutti/base/error.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/vocab_embedding.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compat.h"

namespace tutti::test {
namespace {

constexpr int kPatience = 20'000;  // milliseconds
constexpr int kWidth = 16;

std::uint64_t copied_to(at::Device gpu) { return fake_cuda_copied_to(gpu.index()); }

// Puts a kernel on the current stream that ends when calls have written so many bytes to the GPU in all.
void wait_on_stream_for(at::Device gpu, std::uint64_t bytes, const std::string& what) {
  fakes::enqueue_waiting(fakes::current_stream(gpu), [=] {
    if (!fake_cuda_await_copied_to(gpu.index(), bytes, kPatience))
      throw Exception(Error{.code = Code::kTimeout,
                            .detail = what + ": " + std::to_string(copied_to(gpu)) + " bytes were copied to " +
                                      gpu.str() + ", expected " + std::to_string(bytes) + " while the pass runs"});
  });
}

// Bytes that a call writes to this GPU.
template <class Call>
std::uint64_t bytes_of(at::Device gpu, const Call& call) {
  const std::uint64_t before = copied_to(gpu);
  call();
  return copied_to(gpu) - before;
}

// A Linear that runs a hook before its kernels, in forward() and in backward(). The hook puts work on the stream.
struct Layer : nn::Module {
  Layer() : linear(register_module("linear", nn::Linear(nn::LinearOptions(kWidth, kWidth).bias(false)))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (in_forward) in_forward();
    const at::Tensor y = linear->forward(x);
    if (y.requires_grad() && in_backward) y.register_hook([act = in_backward](const at::Tensor&) { act(); });
    return y.tanh();
  }
  std::function<void()> in_forward, in_backward;
  nn::Linear linear;
};

struct Layers {
  Layers(at::Device gpu, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(std::make_shared<Layer>());
      net->push_back(all.back());
    }
    net->to(gpu);
  }
  std::vector<std::shared_ptr<Layer>> all;
  nn::Sequential net;
};

struct Way {
  std::string name;
  DataParallelOptions options{};
  int stage = 0;  // of a ShardedOptimizer
};

void expect_reductions_beside_backward(const Group& world, Way way) {
  const at::Device gpu = gpu_of(world);
  const at::Tensor x = at::ones({4, kWidth}, gpu);
  way.options.first_bucket_bytes = 1, way.options.bucket_cap_mb = mebibytes(1);  // each gradient is a bucket
  Layers layers(gpu, 3);
  DataParallel ddp(layers.net, world, way.options);
  std::optional<ShardedOptimizer> optimizer;
  if (way.stage > 0) optimizer.emplace(ddp.reducer(), AdamWOptions{}, ShardedOptimizerOptions{.stage = way.stage});
  const std::uint64_t bytes = layers.all[0]->linear->weight.nbytes();
  for (int step = 0; step < 3; ++step) {
    const std::uint64_t before = copied_to(gpu);
    for (std::size_t i = 0; i < layers.all.size(); ++i)
      layers.all[i]->in_backward = [=, behind = layers.all.size() - 1 - i] {
        wait_on_stream_for(gpu, before + behind * bytes, way.name + ", averages of " + std::to_string(behind));
      };
    ddp.zero_grad();
    ddp.forward(x).square().mean().backward();
    optimizer ? optimizer->step() : ddp.finish();
  }
  on_cpu(layers.net->parameters());  // throws what a kernel has thrown
}

TEST(TrainingOnGpus, BucketsAreReducedBesideBackward) {
  const Way ways[] = {{"packed"},
                      {"in place", {.in_place_bytes = 0}},
                      {"views of buckets", {.gradient_as_bucket_view = true}},
                      {"checked on each rank", {.finite_check = FiniteCheck::kThrow}},
                      {"stage 1", {}, 1},
                      {"stage 2", {}, 2}};
  expect_in_world([&](Group& world) {
    for (const Way& way : ways) expect_reductions_beside_backward(world, way);
  });
}

#if TUTTI_TORCH_AT_LEAST(2, 6)  // without the handle of a stream, place_of() waits for it
// A kernel of forward() holds the stream until backward() has returned.
TEST(TrainingOnGpus, BackwardIsLaunchedWithoutWaitingForTheGpu) {
  const Way ways[] = {{"packed"}, {"in place", {.in_place_bytes = 0}}, {"stage 1", {}, 1}, {"stage 2", {}, 2}};
  expect_in_world([&](Group& world) {
    const at::Device gpu = gpu_of(world);
    for (Way way : ways) {
      way.options.first_bucket_bytes = 1, way.options.bucket_cap_mb = mebibytes(1);
      Layers layers(gpu, 2);
      DataParallel ddp(layers.net, world, way.options);
      std::optional<ShardedOptimizer> optimizer;
      if (way.stage > 0) optimizer.emplace(ddp.reducer(), AdamWOptions{}, ShardedOptimizerOptions{.stage = way.stage});
      for (int step = 0; step < 3; ++step) {
        std::promise<void> launched;
        layers.all[0]->in_forward = [gpu, name = way.name, ended = launched.get_future().share()] {
          fakes::enqueue_waiting(fakes::current_stream(gpu), [=] {
            if (ended.wait_for(std::chrono::milliseconds(kPatience)) != std::future_status::ready)
              throw Exception(Error{.code = Code::kTimeout, .detail = name + ": backward() waits for the GPU"});
          });
        };
        ddp.zero_grad();
        ddp.forward(at::ones({4, kWidth}, gpu)).square().mean().backward();
        launched.set_value();
        optimizer ? optimizer->step() : ddp.finish();
      }
      on_cpu(layers.net->parameters());
    }
  });
}

#ifdef TUTTI_HAS_NCCL
// What is in the middle of a pass: two layers that are divided over the ranks, the norm of the batches of all ranks,
// words that are divided, and the weights of blocks.
struct DividedModel : nn::Module {
  DividedModel(const Group& world, bool sequence_parallel)
      : words(register_module(
            "words", VocabParallelEmbedding(world, VocabParallelEmbeddingOptions{.words = kWidth, .columns = kWidth}))),
        up(register_module(
            "up", ColumnParallelLinear(world, ColumnParallelLinearOptions{.in_features = kWidth,
                                                                          .out_features = 2 * kWidth,
                                                                          .sequence_parallel = sequence_parallel}))),
        down(register_module(
            "down", RowParallelLinear(world, RowParallelLinearOptions{.in_features = 2 * kWidth,
                                                                      .out_features = kWidth,
                                                                      .sequence_parallel = sequence_parallel}))),
        group(world),
        divides_sequence(sequence_parallel) {}
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words->forward(ids);
    if (divides_sequence) x = x.narrow(0, 0, x.size(0) / group.size());
    const at::Tensor out = down->forward(up->forward(x).tanh());
    return vocab_parallel_cross_entropy(group, out.reshape({-1, kWidth}).narrow(1, 0, kWidth / group.size()),
                                        at::zeros({out.numel() / kWidth}, ids.options()), {.words = kWidth})
        .mean();
  }
  VocabParallelEmbedding words;
  ColumnParallelLinear up;
  RowParallelLinear down;
  Group group;
  const bool divides_sequence;
};

// Passes of a model, launched while a kernel before them holds the stream.
void expect_launched_while_held(const std::string& what, at::Device gpu, const std::function<at::Tensor()>& forward,
                                const std::function<void()>& step) {
  for (int k = 0; k < 3; ++k) {
    std::promise<void> launched;
    fakes::enqueue_waiting(fakes::current_stream(gpu), [what, ended = launched.get_future().share()] {
      if (ended.wait_for(std::chrono::milliseconds(kPatience)) != std::future_status::ready)
        throw Exception(Error{.code = Code::kTimeout, .detail = what + ": a pass waits for the GPU"});
    });
    forward().backward();
    launched.set_value();
    step();
  }
}

TEST(TrainingOnGpus, CallsInThePassesAreLaunchedWithoutWaitingForTheGpu) {
  const auto body = [](Group& world) {
    const at::Device gpu = gpu_of(world);
    const at::Tensor x = at::ones({4, kWidth}, gpu), ids = at::arange(4, at::kLong).to(gpu);
    for (const bool sequence_parallel : {false, true}) {
      DividedModel model(world, sequence_parallel);
      model.to(gpu);
      Optimizer optimizer(model, AdamWOptions{});
      expect_launched_while_held(
          sequence_parallel ? "sequence parallel layers" : "tensor parallel layers", gpu,
          [&] { return model.forward(ids); }, [&] { optimizer.step(); });
      on_cpu(model.parameters());
    }
    {
      nn::Sequential net(nn::Linear(kWidth, kWidth), nn::BatchNorm1d(kWidth));
      net->to(gpu);
      const SyncedBatchNorms norms = sync_batch_norms(net.ptr(), world);
      expect_launched_while_held(
          "synchronised norms", gpu, [&] { return net->forward(x).square().mean(); }, [] {});
      on_cpu(net->parameters());
    }
    Layers layers(gpu, 3);
    FullySharded sharded(layers.net, world);
    ShardedOptimizer optimizer(sharded, AdamWOptions{});
    expect_launched_while_held(
        "FullySharded", gpu, [&] { return sharded.forward(x).square().mean(); }, [&] { optimizer.step(); });
    on_cpu({x});
  };
  expect_in_world(body, 2, kNccl);
}

// Whole weights are for the host.
TEST(TrainingOnGpus, NoWeightsAreMadeWholeByACallThatFailed) {
  const auto body = [](Group& world) {
    Layers layers(gpu_of(world), 1);
    FullySharded sharded(layers.net, world);
    {
      const at::NoGradGuard no_grad;
      sharded.forward(at::ones({4, kWidth}, gpu_of(world)));  // gathers, and releases
    }
    const std::string text = sentence_of([&] { sharded.unshard(); });
    expect_words(text, "all_gather #");
    expect_words(text, "unhandled system error (told by the double)");
  };
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(kNccl, {{"FAKE_NCCL", "fail:1:2"}}))), "");
}

// The step after the call that failed changes no weight.
TEST(TrainingOnGpus, NoOptimizerStepsFromACallThatFailed) {
  const auto body = [](Group& world) {
    const at::Device gpu = gpu_of(world);
    const at::Tensor ids = at::arange(4, at::kLong).to(gpu);
    DividedModel model(world, false);
    model.to(gpu);
    Optimizer optimizer(model, AdamWOptions{});
    model.forward(ids).backward();
    optimizer.step();
    const Tensors before = on_cpu(model.parameters());
    const std::string text = sentence_of([&] {
      for (int k = 0; k < 2; ++k) {
        model.forward(ids).backward();
        optimizer.step();
      }
    });
    expect_words(text, "unhandled system error (told by the double)");
    check_close(on_cpu(model.parameters()), before, "weights", 0);
  };
  // The last call of the second pass: a pass makes four.
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(kNccl, {{"FAKE_NCCL", "fail:1:8"}}))), "");
}
#endif
#endif

TEST(TrainingOnGpus, WeightsAreGatheredAndGradientsReducedBesideThePass) {
  const auto body = [](Group& world) {
    const at::Device gpu = gpu_of(world);
    const at::Tensor x = at::ones({4, kWidth}, gpu), whole = at::ones({kWidth, kWidth}, gpu),
                     part = whole.narrow(0, 0, kWidth / world.size()).clone();
    const std::uint64_t gather = bytes_of(gpu, [&] { all_gather(world, part, whole); });
    const std::uint64_t reduction = bytes_of(gpu, [&] { reduce_scatter(world, whole, part); });
    check(gather > 0, "the copies of a gather are not counted");
    constexpr std::size_t kLayers = 4;
    Layers layers(gpu, kLayers);
    FullySharded sharded(layers.net, world);
    ShardedOptimizer optimizer(sharded, AdamWOptions{});
    const auto step = [&] {
      sharded.forward(x).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    step();  // the order of the blocks is known from here on
    for (int more = 0; more < 2; ++more) {
      const std::uint64_t before = copied_to(gpu);
      for (std::size_t i = 0; i < kLayers; ++i) {
        // The weights of the last layer stay from forward() to backward().
        const std::uint64_t forward = std::min(i + 2, kLayers), backward = kLayers + std::min(kLayers - i, kLayers - 1);
        layers.all[i]->in_forward = [=] {
          wait_on_stream_for(gpu, before + forward * gather, "forward(), layer " + std::to_string(i));
        };
        layers.all[i]->in_backward = [=] {
          wait_on_stream_for(gpu, before + backward * gather + (kLayers - 1 - i) * reduction,
                             "backward(), layer " + std::to_string(i));
        };
      }
      step();
    }
    on_cpu({x});  // throws what a kernel has thrown
  };
  for (const char* engine : {kStaged, kIpc}) expect_in_world(body, 2, engine);
}

}  // namespace
}  // namespace tutti::test
