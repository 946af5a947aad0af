// As prelude_core.h, for the fragments that need LibTorch.
#include <tutti/tutti.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace docs {

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x);
};
struct Batch {
  torch::Tensor x, y;
};
struct Dataset {
  std::size_t size() const;
  Batch batch(const std::vector<std::int64_t>& samples) const;
};

extern const tutti::Group world;
extern const std::shared_ptr<Net> model;
extern tutti::DataParallel<Net> ddp;
extern tutti::ShardedOptimizer optimizer;
extern const Dataset data;
extern const std::vector<Batch> mine;
extern const torch::Tensor x, y;
extern std::int64_t step, steps;
extern const std::uint64_t seed;
extern const std::string folder;
extern const tutti::CheckpointReader reader;

template <class... T>
torch::Tensor loss(const T&... arguments);
void train(const Batch& batch);
void train(std::int64_t step);
torch::Tensor x_of(int replica);
torch::Tensor y_of(int replica);

// Tensor parallel layers, pipelines, tables
extern const std::int64_t h;
extern const tutti::Chunk chunk;
extern const std::int64_t samples;
extern const std::vector<tutti::LookupsView> lookups;
extern const torch::Tensor dense;
torch::Tensor bottom(const torch::Tensor& dense);

}  // namespace docs
