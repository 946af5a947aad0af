// A small transformer of ordinary layers, divided over the ranks by a plan of one line: the same losses on 1, 2 or 4.
// It learns to repeat a sequence of digits backwards.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>

constexpr int kWidth = 32, kHeadWidth = 8, kDigits = 10, kLength = 6;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    for (auto* norm : {&before, &after})
      *norm = register_module(norm == &before ? "before" : "after", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}));
    query = register_module("query", tutti::Linear(kWidth, kWidth));
    key = register_module("key", tutti::Linear(kWidth, kWidth));
    value = register_module("value", tutti::Linear(kWidth, kWidth));
    out = register_module("out", tutti::Linear(kWidth, kWidth));
    up = register_module("up", tutti::Linear(kWidth, 4 * kWidth));
    down = register_module("down", tutti::Linear(4 * kWidth, kWidth));
  }

  torch::Tensor forward(torch::Tensor x) {  // [batch, length, width]
    const auto y = before(x);
    // -1: all heads, or this rank's.
    const auto heads = [&](tutti::Linear& layer) {
      return layer(y).view({x.size(0), kLength, -1, kHeadWidth}).transpose(1, 2);
    };
    const auto scores = heads(query).matmul(heads(key).transpose(-1, -2)) / std::sqrt(double(kHeadWidth));
    x = x + out(scores.softmax(-1).matmul(heads(value)).transpose(1, 2).flatten(2));
    return x + down(torch::gelu(up(after(x))));
  }

  torch::nn::LayerNorm before{nullptr}, after{nullptr};
  tutti::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

int main() {
  const tutti::Group world = tutti::init();
  torch::manual_seed(1);  // data and the layers that are not divided: the same on every rank
  torch::nn::Sequential model(torch::nn::Embedding(kDigits * kLength, kWidth), Block(), Block(),
                              torch::nn::Linear(kWidth, kDigits));
  model->to(torch::kDouble);

  const tutti::ShardColumns columns;
  const tutti::ShardRows rows;
  tutti::shard_linears(*model, world,
                       {{"*.query", columns},
                        {"*.key", columns},
                        {"*.value", columns},
                        {"*.out", rows},
                        {"*.up", columns},
                        {"*.down", rows}});

  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  for (int step = 1; step <= 60; ++step) {
    const auto digits = torch::randint(kDigits, {32, kLength}, torch::kLong);
    const auto words = digits + kDigits * torch::arange(kLength);  // a digit and its place
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(model->forward(words).flatten(0, 1), digits.flip(1).flatten());
    loss.backward();
    optimizer.step();
    if (world.rank() == 0 && (step == 1 || step % 20 == 0))
      std::printf("step %d: loss %.9f\n", step, loss.item<double>());
  }
}
