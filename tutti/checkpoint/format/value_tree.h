#pragma once
// What a file says besides its tensors, as a tree of names: facts of a checkpoint, dicts and lists of a PyTorch file.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

struct ValueTree {
  enum class Kind { kLeaf, kDict, kList, kTuple };

  std::string name;  // in what is around: a key, or a number from 0 on
  Kind kind = Kind::kDict;
  std::string text;                      // of a leaf: 0.001, "adam", F32[2, 3]
  std::optional<CheckpointValue> value;  // of a leaf that a checkpoint can keep
  std::vector<ValueTree> members;

  static ValueTree leaf(std::string name, const CheckpointValue& value);
  static ValueTree word(std::string name, std::string text);  // shown as it is
  static ValueTree dict(std::string name, const CheckpointValues& values);
};

// An object of a file that is not read.
struct SkippedObject {
  std::string path;           // "args"
  std::string type;           // "argparse.Namespace"
  std::uint64_t tensors = 0;  // that it is, or holds
};

std::string to_string(const CheckpointValue& value);
// "state.optimizers.0.lr": names with points in them are found as well. kNotFound names the first that is not there,
// and what there is in its place. Empty: the tree itself.
Result<const ValueTree*> find_value(const ValueTree& tree, std::string_view path);
// A line for each leaf, short lists in one line, at most `most_members` of a long one.
std::string tree_text(const ValueTree& tree, std::size_t most_members);

}  // namespace tutti
