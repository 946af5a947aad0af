#pragma once
// The state of a training by name: tensors, of which each rank may have some boxes, and values. An object describes its
// state in one function, which serves for saving and for loading:
//
//   struct Average {
//     std::int64_t steps = 0;
//     std::vector<float> sums = std::vector<float>(10);
//     void state(tutti::StateDict& state) {
//       state.value("steps", steps);
//       state.tensor({.key = {"sums"}, .shape = {10}, .data = sums.data()});
//     }
//   };
//
// A type that cannot have this member has a function add_state(StateDict&, object) in its namespace or in tutti:
// modules (tensor/module_state.h), optimizers (parallel/optim/state_part.h), tensor-parallel parameters
// (parallel/tensor/parameter_layout.h). Checkpointer (checkpointer.h) saves and loads what is added to it.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/checkpoint/format/box.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/comm/group.h"

namespace tutti {

class CheckpointReader;  // io/reader.h

// Rows [first, first + count) of a box, packed one after another. Called in rising order, each row once.
using RowSource = std::function<Status(std::uint64_t first, std::uint64_t count, std::byte* into)>;
using RowSink = std::function<Status(std::uint64_t first, std::uint64_t count, const std::byte* rows)>;

// What this rank has of a tensor. Several ranks may have the same box (replicas, which must be equal, or see
// `may_differ`). All boxes of a tensor together cover it, and do not overlap otherwise.
struct StateBox {
  TensorKey key;
  DType dtype = DType::kF32;
  TensorShape shape;           // of the whole tensor
  TensorBox box = {};          // without dimensions: the whole
  void* data = nullptr;        // its first element, in memory of the CPU; row-major, packed within a row
  std::size_t row_stride = 0;  // bytes from row to row; 0: packed
  // The ranks may have other values in it, as DataParallel has in buffers between two calls of forward(): that of the
  // first rank is saved.
  bool may_differ = false;
  // In place of data, for rows that do not lie in memory as they are saved.
  RowSource source = {};
  RowSink sink = {};  // loads; a box that is only saved needs none
};
// The box, or the whole tensor where none is given.
TensorBox box_of(const StateBox& box);
std::uint64_t bytes_of(const StateBox& box);
// Whether the box makes sense by itself: a dtype that files know, a box inside the shape, one source, strides that
// leave room for the rows. kInvalidArgument names the tensor.
Status check(const StateBox& box);

enum class StateUse {
  kSave,
  kLoad,
  kLoadWeights,  // tensors of the model alone: no optimizer state, no values
};

// One thread. Memory and variables that are added must stay until the dict has been saved or loaded.
class StateDict {
 public:
  explicit StateDict(StateUse use) : use_(use) {}
  StateDict(const StateDict&) = delete;
  StateDict& operator=(const StateDict&) = delete;

  bool loading() const { return use_ != StateUse::kSave; }
  bool weights_only() const { return use_ == StateUse::kLoadWeights; }
  // The prefix of names in the add() that is under way.
  const std::string& prefix() const { return prefix_; }

  // The state of an object. Names of tensors and values in it begin with `name` and a point; but those of "model",
  // "optimizer" and "" stay as they are, so that other programs find the weights under the model's own names.
  template <class T>
  void add(const std::string& name, T&& object) {
    const std::string outer = prefix_;
    if (!name.empty() && name != "model" && name != "optimizer") prefix_ += name + ".";
    if constexpr (requires { object.state(*this); }) {
      object.state(*this);
    } else {
      add_state(*this, object);
    }
    prefix_ = outer;
  }

  // A box is written and read in place. A tensor without TensorKey::state is one of the model. Loading fails with
  // kMismatch where the checkpoint lacks the tensor, or has it in another type or shape.
  void tensor(StateBox box);
  // A box that a function given to after_load() reads, if the checkpoint has it, in whatever shape it has it.
  void optional_tensor(StateBox box);

  // A bool, integer, floating-point number or string. Loading fails with kMismatch where the checkpoint lacks it, or
  // has one of another kind.
  template <class T>
  void value(const std::string& name, T& variable) {
    add_value({.name = prefix_ + name, .now = to_value(variable), .assign = [&variable](const CheckpointValue& saved) {
                 assign(saved, variable);
               }});
  }
  // As value(); but where the checkpoint lacks it, or has one of another kind, the variable stays as it is.
  template <class T>
  void optional_value(const std::string& name, T& variable) {
    value(name, variable);
    values_.back().optional = true;
  }
  // The position in the training data: a whole number, at least `least`. It is CheckpointFacts::data of the checkpoint.
  void data(const std::string& name, std::int64_t& variable, std::int64_t least = 0);
  void data(const std::string& name, std::uint64_t& variable);

  // What else a checkpoint says, without prefix; Checkpointer sets the step. Loading reads none of it: a function given
  // to check() or after_load() may.
  CheckpointFacts& facts() { return facts_; }
  const CheckpointFacts& facts() const { return facts_; }

  // Called before a load changes anything; an error of any rank ends the load on all.
  using Action = std::function<Status(const CheckpointReader& saved)>;
  void check(Action action) { checks_.push_back(std::move(action)); }
  // Called when tensors and values have been loaded.
  void after_load(Action action) { after_load_.push_back(std::move(action)); }
  // The checkpoint may have tensors that no rank adds. Without this they are an error (kMismatch). All ranks or none.
  void allow_other_tensors() { others_allowed_ = true; }
  bool others_allowed() const { return others_allowed_; }

  const std::vector<StateBox>& boxes() const { return boxes_; }
  // boxes(), and the optional ones: what a load may read.
  std::vector<StateBox> boxes_to_load() const;
  // All checks first: nothing is changed unless all ranks have passed them. Collective, and equal on all ranks: ok, or
  // the error of the first rank that has one. On an error of reading some tensors may have been loaded. Without a
  // group: one process.
  Status load(const Group& group, const CheckpointReader& saved);

 private:
  struct Value {
    std::string name;
    CheckpointValue now;
    bool in_data = false, optional = false;
    std::int64_t least = 0;  // in_data
    std::function<void(const CheckpointValue&)> assign;
  };
  template <class T>
  static CheckpointValue to_value(const T& variable) {
    if constexpr (std::is_same_v<T, bool> || std::is_convertible_v<T, std::string>)
      return variable;
    else if constexpr (std::is_floating_point_v<T>)
      return double(variable);
    else
      return std::int64_t(variable);
  }
  template <class T>
  static void assign(const CheckpointValue& saved, T& variable) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
      variable = std::get<T>(saved);
    } else if (const auto* const whole = std::get_if<std::int64_t>(&saved)) {
      variable = T(*whole);
    } else {
      variable = T(std::get<double>(saved));
    }
  }
  void add_value(Value value);
  std::vector<StateBox> counted_boxes() const;  // that a load reads in any case
  Status check_tensors(const Group& group, const CheckpointReader& saved) const;
  Status check_values(const CheckpointReader& saved) const;
  static const CheckpointValue* find_fitting(const CheckpointReader& saved, const Value& value);
  Status read_all(const CheckpointReader& saved) const;

  const StateUse use_;
  std::string prefix_;
  std::vector<StateBox> boxes_, optional_;
  std::vector<Value> values_;
  CheckpointFacts facts_;
  std::vector<Action> checks_, after_load_;
  bool others_allowed_ = false;
};

// The position in the data of a sampler, or of a Loader over one (data/loader.h): "consumed_samples" of a BatchSampler,
// "epoch" and "position" of a DistributedSampler. Restoring a Loader discards the batches that it has made ahead.
template <class Sampler>
  requires requires(Sampler& sampler) { sampler.restore(sampler.state()); }
void add_state(StateDict& state, Sampler& sampler) {
  const auto position = std::make_shared<std::decay_t<decltype(sampler.state())>>(sampler.state());
  if constexpr (std::is_integral_v<std::decay_t<decltype(*position)>>) {
    state.data("consumed_samples", *position);
  } else {
    state.data("epoch", position->epoch);
    state.data("position", position->position);
  }
  if (!state.loading() || state.weights_only()) return;
  state.after_load([&sampler, position](const CheckpointReader&) {
    sampler.restore(*position);
    return Status();
  });
}

}  // namespace tutti
