// Byte strings and JSON, which are values and not buffers: a call makes new ones. An element type means nothing to
// them.
#include <nlohmann/json.hpp>

#include "bench/collectives/exercises.h"
#include "bench/collectives/pattern.h"
#include "tutti/comm/json_objects.h"

namespace tutti::bench {
namespace {

// What rank `rank` brings: letters, which are text in JSON as well.
std::string text_of(const Pattern& pattern, int rank, std::size_t bytes) {
  std::string text(bytes, '\0');
  pattern.write(rank, reinterpret_cast<std::byte*>(text.data()), bytes);
  for (char& c : text) c = char('a' + c);
  return text;
}

std::size_t difference(const std::string& got, const std::string& want) {
  std::size_t wrong = std::max(got.size(), want.size()) - std::min(got.size(), want.size());
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) wrong += got[i] != want[i];
  return wrong;
}

class ObjectExercise : public Exercise {
 public:
  ObjectExercise(const Group& group, const Operation& operation, Size size, Buffers buffers)
      : Exercise(group, operation, {DType::kU8, ReduceOp::kSum, size.bytes}, buffers) {
    make_mine();
  }
  void write_pattern() override { write_zeros(); }
  void write_zeros() override {
    make_mine();
    received_.clear();
    received_json_.clear();
  }
  void rewrite() override { make_mine(); }

  void call() override {
    const bool root = group_.rank() == 0;
    if (operation_.form == Form::kBytes && operation_.kind == Kind::kBroadcast) {
      received_.resize(1);
      broadcast_bytes(group_, root ? mine_ : received_[0]);
    } else if (operation_.form == Form::kBytes) {
      received_ = all_gather_bytes(group_, mine_);
    } else if (operation_.kind == Kind::kBroadcast) {
      received_json_.resize(1);
      broadcast_json(group_, root ? mine_json_ : received_json_[0]);
    } else {
      received_json_ = all_gather_json(group_, mine_json_);
    }
  }
  std::size_t count_wrong() const override {
    if (operation_.kind == Kind::kBroadcast) return group_.rank() == 0 ? 0 : difference(received(0), wanted(0));
    std::size_t wrong = 0;
    for (int rank = 0; rank < group_.size(); ++rank) wrong += difference(received(rank), wanted(rank));
    return wrong;
  }
  std::string plan_name() const override { return operation_.form == Form::kJson ? "json" : "bytes"; }

 private:
  std::string wanted(int rank) const {
    return text_of({DType::kU8, ReduceOp::kSum, group_.size()}, rank,
                   operation_.splits ? count_ / std::size_t(group_.size()) : count_);
  }
  void make_mine() {
    mine_ = wanted(group_.rank());
    if (operation_.form == Form::kJson) mine_json_ = {{"rank", group_.rank()}, {"text", mine_}};
  }
  std::string received(int rank) const {
    const std::size_t place = std::size_t(rank);
    if (operation_.form == Form::kBytes) return place < received_.size() ? received_[place] : std::string();
    if (place >= received_json_.size()) return {};
    const nlohmann::json& value = received_json_[place];
    return value.is_object() && value.value("rank", -1) == rank ? value.value("text", std::string()) : std::string();
  }

  std::string mine_;
  nlohmann::json mine_json_;
  std::vector<std::string> received_;
  std::vector<nlohmann::json> received_json_;
};

}  // namespace

std::unique_ptr<Exercise> make_objects(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  return std::make_unique<ObjectExercise>(group, operation, size, buffers);
}

}  // namespace tutti::bench
