#pragma once
// What of a parameter a rank has: the shape of the whole, which does not depend on the number of ranks, and this rank's
// boxes of it. Checkpoints of any grid are made of these, and so are norms over all ranks (a parameter that all ranks
// have counts once).
//
//   for (const PlacedParameter& placed : placed_parameters(*model))
//     for (const auto& [box, part] : pieces(placed.layout, placed.tensor)) ...
//
//   checkpoints.add("model", placed_parameters(*model));   // Checkpointer
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/checkpoint/format/box.h"
#include "tutti/checkpoint/state.h"

namespace torch::nn {
class Module;
}

namespace tutti {

struct ParameterLayout {
  TensorShape shape;                  // of the whole parameter
  std::int64_t dimension = -1;        // which is divided among the ranks of the tensor group; -1: each has the whole
  std::vector<TensorBox> boxes = {};  // of this rank: one after another along `dimension` they are its tensor, of which
                                      // what follows is padding; some may be empty
  // Each rank of the tensor group has the gradient of its part of the sequence only: they are to be added up at the end
  // of a step (partial_gradients.h).
  bool partial_gradient = false;

  bool divided() const { return dimension >= 0; }

  static ParameterLayout whole(TensorShape shape, bool partial_gradient = false);
  // `blocks`: lengths that add up to shape[dimension], each of which is divided by itself, as the gate and the other
  // half of a gated layer, or queries, keys and values of one weight; empty: one block. Throws where `ranks` does not
  // divide all of them; `who` and `what` as in division.h.
  static ParameterLayout divide(TensorShape shape, std::int64_t dimension, int rank, int ranks, const std::string& who,
                                const std::string& what, const std::vector<std::int64_t>& blocks = {});
  // Rows in runs of rows_each, the last of which may be shorter or missing.
  static ParameterLayout rows(TensorShape shape, std::int64_t rows_each, int rank);

  // Of this rank's tensor, without padding.
  std::vector<std::int64_t> local_sizes() const;
  // Of the whole tensor what this rank has, without padding: a new tensor.
  at::Tensor part_of(const at::Tensor& whole) const;
};

// A module whose own parameters (not those of its children) are not simply whole on every rank.
class TensorParallelModule {
 public:
  virtual ~TensorParallelModule() = default;
  // Of the parameter that the module registered under this name.
  virtual ParameterLayout layout_of(std::string_view name) const = 0;
};

struct PlacedParameter {
  std::string name;  // as in state_dict()
  at::Tensor tensor;
  ParameterLayout layout;
};

// Those of the module and of all its submodules, in the order of registration, a tied one only where it comes first.
// What is not a TensorParallelModule has whole parameters.
std::vector<PlacedParameter> placed_parameters(const torch::nn::Module& module);

// A tensor of the shape of this rank's parameter (itself, its gradient, what an optimizer keeps for it) as its boxes,
// each with its part, a view. Empty boxes are skipped.
std::vector<std::pair<TensorBox, at::Tensor>> pieces(const ParameterLayout& layout, const at::Tensor& local);

// This rank's boxes of each parameter. Padding is neither saved nor loaded.
void add_state(StateDict& state, std::span<const PlacedParameter> parameters);
inline void add_state(StateDict& state, const std::vector<PlacedParameter>& parameters) {
  add_state(state, std::span(parameters));
}

}  // namespace tutti
