#pragma once
// The tensors of a StateDict as one safetensors file, without a group: for weights that other programs read.
//
//   tutti::save_tensors("model.safetensors", *model).or_throw();
//   tutti::load_tensors("model.safetensors", *model).or_throw();     // or what torch.save() wrote
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/state.h"

namespace tutti {

// This rank's tensors, each of which it has as a whole. Values are not saved. Blocks; replaces the file at once or not
// at all.
Status save_tensors(const std::string& path, const StateDict& state, const SafetensorsMetadata& metadata = {});
// From whatever holds tensors (open.h). kMismatch names the first tensor that the file lacks, or has in another type or
// shape, or has without the state (but for StateDict::allow_other_tensors()); then nothing was changed.
Status load_tensors(const std::string& path, const StateDict& state);

// Of an object, under its own names.
template <class T>
  requires(!std::is_base_of_v<StateDict, T>)
Status save_tensors(const std::string& path, const T& object, const SafetensorsMetadata& metadata = {}) {
  StateDict state(StateUse::kSave);
  state.add("", object);
  return save_tensors(path, std::as_const(state), metadata);
}
template <class T>
  requires(!std::is_base_of_v<StateDict, std::remove_cvref_t<T>>)
Status load_tensors(const std::string& path, T&& object) {
  StateDict state(StateUse::kLoad);
  state.add("", object);
  return load_tensors(path, std::as_const(state));
}

}  // namespace tutti
