// Page 6 of the tutorial: one training loop, and several ways to divide memory and work over the ranks.
//
//   tutti run -n 2 scaling ddp|overlap|bf16|sharded|fully_sharded [TRACE.json]
#include <tutti/tutti.h>

#include <cstdio>
#include <string>

// Trains for 20 steps. `step` averages the gradients and steps the optimizer.
template <class Model, class Optimizer, class Step>
void train(const tutti::Group& world, Model& model, Optimizer& optimizer, const Step& step) {
  double loss = 0;
  for (int number = 1; number <= 20; ++number) {
    world.step(number);
    tutti::seed_all(0, {.step = number, .replica = world.rank()});  // other samples on each rank
    const auto x = torch::randn({64, 64}), y = x.sum(1, true) / 8;
    torch::Tensor error;
    {
      const tutti::Region region("forward");
      error = torch::mse_loss(model.forward(x).to(torch::kFloat), y);
    }
    {
      const tutti::Region region("backward");
      error.backward();
    }
    {
      const tutti::Region region("step");
      step();
    }
    optimizer.zero_grad();
    loss = tutti::all_reduce(world, error.item<double>()) / world.size();
  }
  if (world.rank() == 0) std::printf("loss %.3f, %zu bytes of optimizer state\n", loss, optimizer.state_bytes());
}

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "ddp";
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  tutti::seed_all(0);  // the same weights on every rank
  torch::nn::Sequential net(torch::nn::Linear(64, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                            torch::nn::ReLU(), torch::nn::Linear(512, 1));
  const tutti::AdamWOptions adamw{.lr = 1e-3};
  tutti::start_trace();

  if (way == "fully_sharded") {
    tutti::FullySharded model(net, world);
    tutti::ShardedOptimizer optimizer(model, adamw);
    train(world, model, optimizer, [&] { optimizer.step(); });
  } else if (way == "sharded") {
    tutti::DataParallel model(net, world);
    tutti::ShardedOptimizer optimizer(model, adamw, {.stage = 2});
    train(world, model, optimizer, [&] { optimizer.step(); });
  } else if (way == "ddp" || way == "overlap" || way == "bf16") {
    tutti::DataParallelOptions options;
    if (way == "overlap") options.overlap = tutti::Overlap::kOn;
    if (way == "bf16") options.autocast = tutti::DType::kBF16;
    tutti::DataParallel model(net, world, options);
    tutti::AdamW optimizer(*net, adamw);
    train(world, model, optimizer, [&] {
      model.finish();
      optimizer.step();
    });
  } else {
    std::fprintf(stderr, "usage: scaling ddp|overlap|bf16|sharded|fully_sharded [TRACE.json]\n");
    return 2;
  }

  if (argc > 2) {
    const tutti::Trace trace = tutti::stop_trace();
    if (world.rank() == 0) std::fputs(tutti::profile_table(trace).c_str(), stdout);
    tutti::write_chrome_trace(world, trace, argv[2]).or_throw();
  }
}
