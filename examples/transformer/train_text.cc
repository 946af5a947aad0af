// A small GPT learns a text, byte by byte. Every rank trains on windows of its own; gradients are averaged.
//
//   train_text book.txt                      # or: tutti run -n 4 train_text book.txt
#include <torch/torch.h>
#include <tutti/models/transformer/transformer.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <fstream>
#include <iterator>

int main(int argc, char** argv) {
  constexpr int kLength = 32, kBatch = 16;  // positions of a window, windows of a step
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  std::ifstream file(argc > 1 ? argv[1] : "", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() <= kLength) {
    std::fprintf(stderr, "usage: train_text FILE, of more than %d bytes\n", kLength);
    return 2;
  }
  const auto tokens = torch::from_blob(text.data(), {std::int64_t(text.size())}, torch::kUInt8).to(torch::kLong);

  const auto model = std::make_shared<tutti::Transformer>(
      tutti::TransformerConfig{.layers = 2, .hidden = 64, .heads = 4, .vocabulary = 256, .sequence_length = kLength});
  tutti::DataParallel ddp(model, world);
  torch::optim::AdamW optimizer(model->parameters(), 3e-3);
  torch::manual_seed(std::uint64_t(1 + world.rank()));
  for (int step = 1; step <= 150; ++step) {
    const auto begins = torch::randint(tokens.numel() - kLength, {kBatch}, torch::kLong);
    const auto windows = tokens.index({torch::arange(kLength + 1).unsqueeze(1) + begins});  // [positions, windows]
    ddp.zero_grad();
    const auto loss = ddp.forward(
        tutti::MicroBatch{.tokens = windows.narrow(0, 0, kLength), .targets = windows.narrow(0, 1, kLength)});
    loss.backward();
    ddp.finish();
    optimizer.step();
    if (world.rank() == 0 && step % 50 == 0) std::printf("step %d, loss %.3f\n", step, loss.item<double>());
  }
}
