// A small transformer under FullySharded: each rank keeps a part of the weights, of their gradients and of AdamW's
// state, and the losses are those of one process.
//
//   tutti run -n 2 fully_shard           weights in f32
//   tutti run -n 2 fully_shard bf16      the blocks compute in bf16, the optimizer steps f32
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kWords = 32, kHidden = 64, kHeads = 4, kTokens = 16, kBatch = 12;

// Attention, then an MLP, each beside a path that leaves x as it is.
struct Layer : torch::nn::Module {
  Layer() {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {  // [batch, tokens, hidden]
    const auto split = qkv(norm1(x)).view({x.size(0), x.size(1), 3, kHeads, kHidden / kHeads}).permute({2, 0, 3, 1, 4});
    const auto scores = split[0].matmul(split[1].transpose(-1, -2)) / std::sqrt(double(kHidden / kHeads)) + mask;
    const auto mixed = scores.softmax(-1).matmul(split[2]).transpose(1, 2).reshape(x.sizes());
    x = x + out(mixed);
    return x + down(torch::gelu(up(norm2(x))));
  }
  torch::nn::LayerNorm norm1{torch::nn::LayerNormOptions({kHidden})}, norm2{torch::nn::LayerNormOptions({kHidden})};
  torch::nn::Linear qkv{kHidden, 3 * kHidden}, out{kHidden, kHidden}, up{kHidden, 4 * kHidden},
      down{4 * kHidden, kHidden};
};

// The words' table makes the logits as well: a tied weight, which belongs to the root.
struct Transformer : torch::nn::Module {
  Transformer() {
    register_module("words", words);
    places = register_parameter("places", 0.02 * torch::randn({kTokens, kHidden}));
    register_module("layers", list);
    for (int i = 0; i < 3; ++i) {
      layers.push_back(std::make_shared<Layer>());
      list->push_back(layers.back());
    }
    register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {  // i64 [batch, kTokens] to logits [batch, kTokens, kWords]
    auto x = words(tokens) + places;
    const auto mask = torch::full({kTokens, kTokens}, -1e4, x.options().requires_grad(false)).triu(1);
    for (const auto& layer : layers) x = tutti::run_block(layer, x, mask);  // not layer->forward(x, mask)
    return torch::linear(norm(x), words->weight);
  }
  torch::nn::Embedding words{kWords, kHidden};
  torch::Tensor places;
  torch::nn::ModuleList list;
  std::vector<std::shared_ptr<Layer>> layers;
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kHidden})};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string type = argc > 1 ? argv[1] : "f32";
  if (argc > 2 || (type != "f32" && type != "bf16")) {
    std::fprintf(stderr, "usage: fully_shard [f32|bf16]\n");
    return 2;
  }
  const auto world = tutti::init();
  if (kBatch % world.size() != 0) {
    if (world.rank() == 0) std::fprintf(stderr, "fully_shard: %d ranks do not divide a batch of 12\n", world.size());
    return 2;
  }
  torch::manual_seed(1);
  auto model = std::make_shared<Transformer>();
  tutti::FullyShardedOptions options{.blocks = {"layers.*"}};
  if (type == "bf16")
    options.mixed_precision = {.param_dtype = tutti::DType::kBF16, .output_dtype = tutti::DType::kF32};
  tutti::FullySharded sharded(model, world, options);
  tutti::ShardedOptimizer optimizer(sharded, tutti::AdamWOptions{.lr = 3e-3});

  const std::int64_t mine = kBatch / world.size();
  for (int step = 0; step <= 60; ++step) {
    torch::manual_seed(std::uint64_t(step));  // the same batch on every rank, of which each takes its part
    const auto first = torch::randint(kWords, {kBatch, 1}, torch::kLong),
               stride = torch::randint(1, 4, {kBatch, 1}, torch::kLong);
    const auto text =
        (first + stride * torch::arange(kTokens + 1)).remainder(kWords).narrow(0, world.rank() * mine, mine);
    const auto logits = sharded.forward(text.narrow(1, 0, kTokens));
    const auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), text.narrow(1, 1, kTokens).flatten());
    loss.backward();
    optimizer.clip_grad_norm(1.0);
    optimizer.step();
    optimizer.zero_grad();
    const double mean = tutti::all_reduce(world, loss.item<double>()) / world.size();
    if (world.rank() == 0 && step % 20 == 0) std::printf("step %d, loss %.4f\n", step, mean);
  }
}
