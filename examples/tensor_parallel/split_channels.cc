// A convolutional network whose channels are divided among the ranks, on as many as divide them: the same losses on 1,
// 2, 4 or 8. Of the two convolutions the first has some output channels of its own on each rank, the second takes those
// and its results are added up; so there is one exchange for the two, as for a column and a row layer.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

// 3 x 3, [n, in, h, w] to [n, out, h, w] through `inner` channels, which the number of ranks has to divide.
struct SplitConvolutions : torch::nn::Module {
  SplitConvolutions(const tutti::Group& group, std::uint64_t in, std::uint64_t inner, std::uint64_t out) : tp(group) {
    const auto part = [&](tutti::TensorShape shape, int dimension) {
      return tutti::ParameterLayout::divide(std::move(shape), dimension, tp.rank(), tp.size(), "SplitConvolutions",
                                            "inner channels");
    };
    const auto draw = [](const tutti::ParameterLayout& layout, std::uint64_t seed) {
      return tutti::draw_weights(layout, tutti::InitialWeights::normal(seed, 0.2), torch::kDouble);
    };
    first = register_parameter("first", draw(part({inner, in, 3, 3}, 0), 1));
    second = register_parameter("second", draw(part({out, inner, 3, 3}, 1), 2));
    bias = register_parameter("bias", torch::zeros({std::int64_t(out), 1, 1}, torch::kDouble));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto whole = tutti::autograd::copy_to_region(tp, x);  // adds the ranks' gradients up, in backward
    const auto mine = torch::relu(torch::conv2d(whole, first, {}, 1, 1));
    return tutti::autograd::reduce_from_region(tp, torch::conv2d(mine, second, {}, 1, 1)) + bias;
  }

  tutti::Group tp;
  torch::Tensor first, second, bias;
};

int main() {
  const tutti::Group world = tutti::init();
  const auto convolutions = std::make_shared<SplitConvolutions>(world, 1, 16, 8);
  tutti::ColumnParallelLinear wide(world,
                                   tutti::ColumnParallelLinearOptions{.in_features = 8 * 4 * 4,
                                                                      .out_features = 64,
                                                                      .initial = tutti::InitialWeights::normal(3, 0.1),
                                                                      .dtype = torch::kDouble});
  tutti::RowParallelLinear classes(world,
                                   tutti::RowParallelLinearOptions{.in_features = 64,
                                                                   .out_features = 4,
                                                                   .initial = tutti::InitialWeights::normal(4, 0.1),
                                                                   .dtype = torch::kDouble});
  std::vector<torch::Tensor> parameters = convolutions->parameters();
  for (const auto& layer : {wide->parameters(), classes->parameters()})
    parameters.insert(parameters.end(), layer.begin(), layer.end());
  torch::optim::SGD optimizer(parameters, 0.05);

  // Noise, and in one quarter of each picture more of it: which one? All ranks see the same pictures.
  torch::manual_seed(7);
  for (int step = 1; step <= 60; ++step) {
    auto pictures = torch::randn({32, 1, 8, 8}, torch::kDouble);
    const auto quarters = torch::randint(4, {32}, torch::kLong);
    for (int i = 0; i < 32; ++i) {
      const auto quarter = quarters[i].item<std::int64_t>();
      pictures[i][0].narrow(0, quarter / 2 * 4, 4).narrow(1, quarter % 2 * 4, 4).mul_(3);
    }
    optimizer.zero_grad();
    const auto seen = torch::max_pool2d(torch::relu(convolutions->forward(pictures)), 2).flatten(1);
    const auto loss = torch::cross_entropy_loss(classes(torch::relu(wide(seen))), quarters);
    loss.backward();
    optimizer.step();
    if (world.rank() == 0 && (step == 1 || step % 20 == 0))
      std::printf("step %d: loss %.9f\n", step, loss.item<double>());
  }
}
