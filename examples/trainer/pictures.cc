// Trains a classifier on your own pictures: DATA has a folder for each label, with grey pictures of one size (PGM).
// Started again, it resumes from the checkpoints in RUN; stopped with SIGTERM, it saves first and exits with code 75.
//
//   tutti run -n 2 pictures DATA RUN
#include <tutti/tutti.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace {

constexpr std::int64_t kEpochs = 20, kBatch = 8;

torch::Tensor read_picture(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  std::int64_t columns = 0, rows = 0, white = 0;
  file >> kind >> columns >> rows >> white;
  auto bytes = torch::empty({1, rows, columns}, torch::kByte);
  file.get();
  file.read(static_cast<char*>(bytes.data_ptr()), bytes.numel());
  TORCH_CHECK(kind == "P5" && file, path.string(), " is no PGM file of bytes");
  return bytes.to(torch::kFloat) / double(white);
}

struct Pictures {
  torch::Tensor pictures, labels;  // f32[n, 1, rows, columns], i64[n]: the same on every rank
  std::int64_t kinds = 0;
};

Pictures read_pictures(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".pgm") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<torch::Tensor> pictures;
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const bool next = i == 0 || paths[i].parent_path() != paths[i - 1].parent_path();
    labels.push_back(i == 0 ? 0 : labels.back() + (next ? 1 : 0));
    pictures.push_back(read_picture(paths[i]));
  }
  TORCH_CHECK(!paths.empty(), folder, " has no .pgm files");
  return {torch::stack(pictures), torch::tensor(labels), labels.back() + 1};
}

class Classifier final : public tutti::Task {
 public:
  Classifier(const tutti::Group& world, Pictures data)
      : world_(world),
        data_(std::move(data)),
        net_(torch::nn::Flatten(), torch::nn::Linear(data_.pictures[0].numel(), 64), torch::nn::ReLU(),
             torch::nn::Linear(64, data_.kinds)),
        ddp_(net_, world),
        optimizer_(*net_, {.lr = 0.05, .momentum = 0.9}),
        sampler_(std::size_t(data_.labels.size(0)), world) {}

  std::int64_t steps_left() const override { return kEpochs * steps_per_epoch() - made_; }

  tutti::TrainingStep step(std::int64_t number) override {
    sampler_.restore({.epoch = (number - 1) / steps_per_epoch(),
                      .position = std::uint64_t((number - 1) % steps_per_epoch() * kBatch * world_.size())});
    const auto rows = torch::tensor(sampler_.take(kBatch));
    ddp_.zero_grad();
    const auto loss = torch::cross_entropy_loss(ddp_.forward(data_.pictures.index_select(0, rows)),
                                                data_.labels.index_select(0, rows));
    loss.backward();
    ddp_.finish();  // averages the gradients over all ranks
    optimizer_.step();
    made_ = number;
    return {.loss = tutti::mean_over_ranks(world_, loss.item<double>()),
            .lr = optimizer_.lr(),
            .samples = double(kBatch * world_.size())};
  }

  tutti::Scalars evaluate(std::int64_t step, bool) override {
    const torch::NoGradGuard no_grad;
    const double right =
        net_->forward(data_.pictures).argmax(1).eq(data_.labels).to(torch::kDouble).mean().item<double>();
    if (world_.rank() == 0) std::printf("step %lld: %.3f of the pictures are right\n", (long long)step, right);
    return {{"train/accuracy", right}};
  }

  void state(tutti::StateDict& state) override {
    state.add("model", *net_);
    state.add("optimizer", optimizer_);
    state.data("steps", made_);
  }

 private:
  std::int64_t steps_per_epoch() const {
    return std::max<std::int64_t>(1, data_.labels.size(0) / (kBatch * world_.size()));
  }

  const tutti::Group& world_;
  const Pictures data_;
  torch::nn::Sequential net_;
  tutti::DataParallel<torch::nn::SequentialImpl> ddp_;
  tutti::Sgd optimizer_;
  tutti::DistributedSampler sampler_;
  std::int64_t made_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: pictures DATA RUN\n"), 2;
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);  // memory and threads for training
  torch::manual_seed(0);
  Classifier task(world, read_pictures(argv[1]));
  return tutti::exit_code(tutti::train(world, task, {.checkpoints = {.folder = argv[2], .interval = 50}}));
}
