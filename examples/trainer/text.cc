// Trains a model that continues text, on a file of your own or on all files of a folder, byte by byte. Started again,
// it resumes from the checkpoints in RUN; stopped with SIGTERM, it saves first and exits with code 75.
//
//   tutti run -n 2 text FILE-OR-FOLDER RUN
#include <tutti/tutti.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace {

namespace fs = std::filesystem;

// Of a file, or of the files of a folder in the order of their names, which is the same on every rank.
std::string text_of(const fs::path& path) {
  if (!fs::is_directory(path)) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) files.insert(entry.path());
  std::string text;
  for (const auto& file : files) text += text_of(file) + '\n';
  return text;
}

constexpr std::int64_t kSteps = 400, kBatch = 64, kContext = 8;  // bytes that the next one is guessed from

class Writer final : public tutti::Task {
 public:
  Writer(const tutti::Group& world, const std::string& text)
      : world_(world),
        net_(torch::nn::Embedding(256, 16), torch::nn::Flatten(), torch::nn::Linear(16 * kContext, 128),
             torch::nn::ReLU(), torch::nn::Linear(128, 256)),
        ddp_(net_, world),
        optimizer_(*net_, {.lr = 3e-3}),
        text_(torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end())).to(torch::kLong)) {}

  std::int64_t steps_left() const override { return kSteps - made_; }

  tutti::TrainingStep step(std::int64_t number) override {
    tutti::seed_all(0, {.step = number, .replica = world_.rank()});  // other places on each rank and in each step
    const auto begin = torch::randint(text_.size(0) - kContext, {kBatch, 1}, torch::kLong);
    const auto bytes = text_.index({begin + torch::arange(kContext + 1)});
    ddp_.zero_grad();
    const auto loss = torch::cross_entropy_loss(ddp_.forward(bytes.slice(1, 0, kContext)), bytes.select(1, kContext));
    loss.backward();
    ddp_.finish();  // averages the gradients over all ranks
    optimizer_.step();
    made_ = number;
    return {.loss = tutti::mean_over_ranks(world_, loss.item<double>()),
            .lr = optimizer_.lr(),
            .samples = double(kBatch * world_.size())};
  }

  void finish(const tutti::TrainingResult& result) override {
    if (result.stopped || world_.rank() != 0) return;
    const torch::NoGradGuard no_grad;
    auto written = text_.slice(0, 0, kContext);
    for (int i = 0; i < 80; ++i) {
      const auto next = net_->forward(written.slice(0, i, i + kContext).unsqueeze(0)).argmax(1);
      written = torch::cat({written, next});
    }
    std::string out;
    for (std::int64_t i = 0; i < written.size(0); ++i) out += char(written[i].item<std::int64_t>());
    std::printf("%s\n", out.c_str());
  }

  void state(tutti::StateDict& state) override {
    state.add("model", *net_);
    state.add("optimizer", optimizer_);
    state.data("steps", made_);
  }

 private:
  const tutti::Group& world_;
  torch::nn::Sequential net_;
  tutti::DataParallel<torch::nn::SequentialImpl> ddp_;
  tutti::AdamW optimizer_;
  const torch::Tensor text_;  // i64[bytes]
  std::int64_t made_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: text FILE-OR-FOLDER RUN\n"), 2;
  const std::string text = text_of(argv[1]);
  if (std::int64_t(text.size()) <= kContext) return std::fprintf(stderr, "%s: no text\n", argv[1]), 2;
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);  // memory and threads for training
  torch::manual_seed(0);
  Writer task(world, text);
  return tutti::exit_code(tutti::train(world, task, {.checkpoints = {.folder = argv[2], .interval = 100}}));
}
