// A network in stages, one after another on different ranks. The losses are the same for any number of ranks, chunks
// and any schedule.
//
//   tutti run -n 2 pipeline                            # 1f1b
//   tutti run -n 4 pipeline zb-h1
//   tutti run -n 2 pipeline interleaved step.json      # and the last step as it was, for a picture:
//   tutti plan pipeline --measured step.json --svg step.svg
#include <tutti/tutti.h>

#include <cstdio>
#include <fstream>

namespace {

constexpr int kLayers = 8, kWidth = 64, kMicrobatches = 8, kRows = 16;

// Learns to sort rows of 16 numbers; all layers are alike but the first and the last.
torch::nn::Linear make_layer(int i) {
  torch::manual_seed(std::uint64_t(1 + i));  // not by who makes it: the same on any number of ranks
  return torch::nn::Linear(i == 0 ? 16 : kWidth, i == kLayers - 1 ? 16 : kWidth);
}

torch::Tensor run_layer(int i, torch::nn::Linear& layer, const torch::Tensor& x) {
  return i < kLayers - 1 ? torch::relu(layer->forward(x)) : layer->forward(x);
}

struct Stage {
  tutti::LayerRange layers;
  std::vector<torch::nn::Linear> modules;
  torch::Tensor forward(torch::Tensor x) {
    for (int i = 0; i < layers.size(); ++i) x = run_layer(layers.begin + i, modules[std::size_t(i)], x);
    return x;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto world = tutti::init();
  const auto kind = tutti::schedule_kind(argc > 1 ? argv[1] : "1f1b");
  if (!kind) {
    std::fprintf(stderr, "%s is no schedule: fill-drain, 1f1b, interleaved, zb-h1 or zb-v\n", argv[1]);
    return 2;
  }
  const bool chunked = *kind == tutti::ScheduleKind::kInterleaved || *kind == tutti::ScheduleKind::kZeroBubbleV;
  const auto schedule =
      tutti::make_schedule(*kind, {.ranks = world.size(), .microbatches = kMicrobatches, .chunks = chunked ? 2 : 1});
  // Each layer is timed on its own, and the stages get layers that take about equally long together.
  const auto measured = [](int i) {
    return [i, layer = make_layer(i)](const torch::Tensor& x) mutable { return run_layer(i, layer, x); };
  };
  const auto costs = tutti::measured_layer_costs(world, kLayers, measured, torch::rand({kRows, 16}));
  const auto ranges = tutti::balanced_stages(costs, schedule.shape.stages());

  // The stages of this rank, and what they do with a microbatch: the first stage reads its data, the last one its
  // targets.
  std::vector<Stage> stages;
  std::vector<torch::Tensor> parameters, batch(kMicrobatches);
  for (int chunk = 0; chunk < schedule.shape.chunks; ++chunk) {
    Stage& stage = stages.emplace_back(Stage{ranges[std::size_t(schedule.stage_of(world.rank(), chunk))], {}});
    for (int i = stage.layers.begin; i < stage.layers.end; ++i) {
      stage.modules.push_back(make_layer(i));
      for (const auto& parameter : stage.modules.back()->parameters()) parameters.push_back(parameter);
    }
  }
  std::vector<tutti::Chunk> chunks;
  for (Stage& stage : stages)
    chunks.push_back([&stage, &batch](int microbatch, const torch::Tensor& input) {
      const torch::Tensor& rows = batch[std::size_t(microbatch)];
      const torch::Tensor output = stage.forward(stage.layers.begin == 0 ? rows : input);
      return stage.layers.end == kLayers ? torch::mse_loss(output, std::get<0>(rows.sort())) : output;
    });

  tutti::Pipeline pipeline(
      world, chunks, {.messages = {.sizes = {kRows, kWidth}}, .broadcast_losses = true, .record_times = argc > 2});
  torch::optim::Adam adam(parameters, 2e-3);
  tutti::StepResult result;
  for (int step = 0; step <= 100; ++step) {
    torch::manual_seed(std::uint64_t(1000 + step));
    for (auto& rows : batch) rows = torch::rand({kRows, 16});
    adam.zero_grad();
    result = pipeline.run(schedule);
    adam.step();
    double loss = 0;
    for (const double one : result.losses) loss += one / kMicrobatches;
    if (world.rank() == 0 && step % 25 == 0) std::printf("step %d, loss %.5f\n", step, loss);
  }
  std::printf("rank %d of %d kept the activations of %d microbatches at most\n", world.rank(), world.size(),
              result.most_kept);
  if (argc > 2) {
    const auto timeline = tutti::measured_timeline(world, schedule, result.times);
    if (world.rank() == 0) std::ofstream(argv[2]) << tutti::to_json({"a step of examples/pipeline", timeline});
  }
}
