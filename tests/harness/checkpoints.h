#pragma once
// For the tests of saving and loading: a folder that goes, a model whose every element is known, and ways to deal it
// out.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"

namespace tutti::test {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / unique()) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string path() const { return path_; }

 private:
  static std::string unique() {
    static std::atomic<int> number{0};
    return "tutti_checkpoint_" + std::to_string(::getpid()) + "_" + std::to_string(number++);
  }
  const std::filesystem::path path_;
};

struct ModelTensor {
  TensorKey key;
  TensorShape shape;
};

// Large enough for several chunks, small, a vector, a scalar, nothing, three dimensions, state.
inline const std::vector<ModelTensor>& model() {
  static const std::vector<ModelTensor> tensors = {
      {{"emb.0", ""}, {9001, 64}}, {{"emb.0", "sum"}, {9001}},
      {{"emb.1", ""}, {37, 5}},    {{"fc.bias", ""}, {7}},
      {{"scale", ""}, {}},         {{"nothing", ""}, {0, 3}},
      {{"conv", ""}, {6, 5, 4}},   {{"conv", "momentum"}, {6, 5, 4}},
  };
  return tensors;
}
inline std::vector<StateBox> expected_model() {
  std::vector<StateBox> wanted;
  for (const ModelTensor& tensor : model()) wanted.push_back({tensor.key, DType::kF32, tensor.shape});
  return wanted;
}

// The elements of a box, packed: each says which tensor it is of, and where it stands.
inline std::vector<float> values(std::size_t tensor, const TensorBox& box, float shift = 0) {
  const TensorShape& shape = model()[tensor].shape;
  std::vector<float> out;
  TensorShape at(shape.size(), 0);
  for (std::uint64_t n = 0; n < box.elements(); ++n) {
    std::uint64_t number = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) number = number * shape[d] + box.begin[d] + at[d];
    out.push_back(float(number) + 0.125f * float(tensor) + shift);
    for (std::size_t d = shape.size(); d > 0 && ++at[d - 1] == box.extent[d - 1]; --d) at[d - 1] = 0;
  }
  return out;
}

enum class Dealing {
  kRows,
  kColumns,
  kWhole,
  kReplicated,
  kStagesOfColumns,    // two stages of a pipeline, of whose tensors each rank has columns
  kReplicatedColumns,  // two ranks share the columns, and the other pairs have the same
};

// The box of a tensor that a rank has; empty extents: none.
inline TensorBox dealt(std::size_t tensor, Dealing dealing, int rank, int ranks) {
  const TensorShape& shape = model()[tensor].shape;
  TensorBox box = TensorBox::whole(shape);
  const int halves = ranks % 2 == 0 ? 2 : 1;
  if (dealing == Dealing::kReplicatedColumns) return dealt(tensor, Dealing::kColumns, rank % halves, halves);
  if (dealing == Dealing::kStagesOfColumns) {
    const int of_stage = ranks / halves;
    box = dealt(tensor, Dealing::kColumns, rank % of_stage, of_stage);
    if (!shape.empty() && int(tensor % std::size_t(halves)) != rank / of_stage) box.extent[0] = 0;
    return box;
  }
  const std::size_t dimension = dealing == Dealing::kColumns ? 1 : 0;
  if (dealing == Dealing::kReplicated || shape.size() <= dimension) return box;  // small ones are on all ranks
  const std::uint64_t size = shape[dimension], r = std::uint64_t(rank), n = std::uint64_t(ranks);
  if (dealing == Dealing::kWhole) {
    if (tensor % n != r) box.extent[0] = 0;
    return box;
  }
  box.begin[dimension] = size * r / n;
  box.extent[dimension] = size * (r + 1) / n - box.begin[dimension];
  return box;
}

// What a rank gives to save_checkpoint(), with the memory that it points to.
struct RankModel {
  std::vector<std::vector<float>> memory;
  std::vector<StateBox> boxes;
  void state(StateDict& dict) {
    for (const StateBox& box : boxes) dict.tensor(box);
  }
};
inline RankModel rank_model(Dealing dealing, int rank, int ranks, float shift = 0) {
  RankModel mine;
  mine.memory.reserve(model().size());
  for (std::size_t t = 0; t < model().size(); ++t) {
    const auto& [key, shape] = model()[t];
    const TensorBox box = dealt(t, dealing, rank, ranks);
    mine.memory.push_back(values(t, box, shift));
    mine.boxes.push_back({.key = key, .shape = shape, .box = box, .data = mine.memory.back().data()});
  }
  return mine;
}

inline Status save_model(const Group& world, const std::string& folder, std::int64_t step, Dealing dealing,
                         float shift = 0, const SaveOptions& options = {}) {
  const RankModel mine = rank_model(dealing, world ? world.rank() : 0, world ? world.size() : 1, shift);
  return save_checkpoint(world, folder, mine.boxes, {.step = step}, options);
}

// Empty, or what is wrong.
inline std::string compare_model(const CheckpointReader& saved, Dealing dealing, int rank, int ranks, float shift = 0) {
  for (std::size_t t = 0; t < model().size(); ++t) {
    const TensorBox box = dealt(t, dealing, rank, ranks);
    const auto wanted = values(t, box, shift);
    std::vector<float> found(wanted.size(), -1);
    const Status read = saved.read(model()[t].key, box, found.data());
    if (!read.ok()) return to_string(read.error());
    if (found != wanted) return to_string(model()[t].key) + " " + box_text(box) + " differs";
  }
  return "";
}

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline void set_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace tutti::test
