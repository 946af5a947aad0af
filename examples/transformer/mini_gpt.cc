// A GPT on a grid of data, tensor and pipeline parallel ranks: 8 ranks are 2 x 2 x 2, 4 are two stages of two tensor
// ranks, 2 are two tensor ranks. The losses are those of one process.
//
//   mini_gpt                                 # or: tutti run -n 8 mini_gpt
#include <torch/torch.h>
#include <tutti/models/transformer/transformer.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr int kMicroBatches = 4, kSamples = 2;  // micro batches of a step over all replicas, samples of each

const tutti::TransformerConfig kConfig{.layers = 4,
                                       .hidden = 32,
                                       .heads = 4,
                                       .vocabulary = 64,
                                       .sequence_length = 16,
                                       .precision = tutti::Precision::kF64};

// Sequences that count upwards, each by a step of its own.
tutti::MicroBatch make_batch(int step, int number) {
  const auto first = torch::arange(kSamples) * 11 + 7 * number + step, by = torch::arange(kSamples) + 1 + number;
  const auto words = (first + by * torch::arange(kConfig.sequence_length + 1).unsqueeze(1)).remainder(64);
  return {.tokens = words.narrow(0, 0, kConfig.sequence_length),
          .targets = words.narrow(0, 1, kConfig.sequence_length),
          .step = step,
          .number = number};
}

}  // namespace

int main() {
  const tutti::Group world = tutti::init();
  // The groups: data ranks have other samples, tensor ranks share every layer, pipeline ranks have other layers.
  const tutti::GridOptions sizes{.tensor = world.size() % 2 == 0 ? 2 : 1, .pipeline = world.size() % 4 == 0 ? 2 : 1};
  const tutti::Parallel parallel = tutti::make_parallel(world, sizes);
  const int replicas = parallel.data.size();
  if (kMicroBatches % replicas != 0) {
    std::fprintf(stderr, "%d micro batches cannot be divided among %d replicas\n", kMicroBatches, replicas);
    return 2;
  }

  // The stage of this rank, and the schedule in which micro batches pass through the stages.
  const auto schedule = tutti::make_schedule(tutti::ScheduleKind::kOneForwardOneBackward,
                                             {.ranks = sizes.pipeline, .microbatches = kMicroBatches / replicas});
  const auto layers = tutti::even_stages(kConfig.layers, sizes.pipeline);
  tutti::Transformer model(kConfig, parallel,
                           {.stages = tutti::stages_of_rank(schedule, layers, parallel.pipeline.rank())});
  const torch::Tensor tied = model.tied_weight();  // the word embedding, if the last stage has a copy of it
  if (tied.defined()) tutti::tie_weight(parallel.embedding, tied);

  std::vector<tutti::MicroBatch> batches;
  const auto run_stage = [&](int number, const torch::Tensor& input) {
    return model.forward(0, batches[std::size_t(number)], input);
  };
  tutti::Pipeline pipeline(
      parallel.pipeline, {run_stage},
      {.messages = {.dtype = tutti::DType::kF64, .sizes = model.activation_sizes(kSamples)}, .broadcast_losses = true});
  torch::optim::AdamW optimizer(model.parameters(), 2e-2);

  for (int step = 1; step <= 20; ++step) {
    batches.clear();
    for (int i = 0; i < kMicroBatches / replicas; ++i)
      batches.push_back(make_batch(step, i * replicas + parallel.data.rank()));
    optimizer.zero_grad();
    const tutti::StepResult result = pipeline.run(schedule);

    // The gradients of the whole model: both copies of the tied embedding add up, then replicas are averaged.
    if (tied.defined()) tutti::sum_tied_gradients(parallel.embedding, tied);
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
    tutti::all_reduce_coalesced(parallel.data, gradients, tutti::ReduceOp::kAvg);
    optimizer.step();

    double loss = 0;
    for (const double one : result.losses) loss += one / kMicroBatches;
    loss = tutti::all_reduce(parallel.data, loss, tutti::ReduceOp::kSum);
    if (world.rank() == 0 && step % 5 == 0) std::printf("step %d, loss %.9f\n", step, loss);
  }
}
