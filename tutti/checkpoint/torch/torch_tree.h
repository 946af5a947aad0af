#pragma once
// What a pickle of PyTorch says, as a tree of names, and the tensors in it by their paths: "state.model.fc.weight".
#include <map>
#include <string>
#include <vector>

#include "tutti/checkpoint/format/box.h"
#include "tutti/checkpoint/format/value_tree.h"
#include "tutti/checkpoint/torch/pickle.h"

namespace tutti {

// A tensor, or one shard of a ShardedTensor.
struct TorchTensor {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::uint64_t element_bytes = 0;
  TensorShape shape;                   // of the whole
  TensorBox box;                       // what is here
  std::string storage;                 // its key
  std::uint64_t first = 0;             // where its first element lies in the storage, in elements
  std::vector<std::uint64_t> strides;  // of the box's dimensions, in elements
  // The numbers are those of the storage with the other sign; they are the conjugates (PyTorch's neg and conj bits).
  bool negated = false, conjugated = false;

  bool is_packed() const;  // rows follow one another without gaps
  // Of its storage from the first element on; none: a stride is that large that they do not fit in 64 bits.
  std::optional<std::uint64_t> span_elements() const;
};

struct TorchTree {
  ValueTree tree;
  std::vector<TorchTensor> tensors;
  std::vector<SkippedObject> skipped;
};

// kCorrupt: a tensor is not what PyTorch writes; kUnsupported: all of it is one object that is not read; kLimit: it
// nests too deep, or holds itself.
Result<TorchTree> read_torch_tree(const Pickle& pickle);

}  // namespace tutti
