// A pickle of a stranger: what is taken makes a tree, in memory and time in proportion to it.
#include "tests/fuzz/targets.h"
#include "tutti/checkpoint/torch/pickle.h"
#include "tutti/checkpoint/torch/torch_tree.h"

namespace tutti::fuzz {

void pickle(Input input) {
  const auto parsed = parse_pickle(text_of(input));
  if (!parsed.ok()) return promise_sentence(parsed.error());
  promise(parsed->bytes <= input.size(), "what was read was there");
  promise(parsed->nodes.size() <= input.size(), "a byte makes one object at most");
  promise(parsed->root < parsed->nodes.size(), "the object is one of those");
  for (const PickleNode& node : parsed->nodes)
    for (const std::uint32_t item : node.items) promise(item < parsed->nodes.size(), "objects hold objects");
  const auto tree = read_torch_tree(*parsed);
  if (!tree.ok()) return promise_sentence(tree.error());
  for (const TorchTensor& tensor : tree->tensors) {
    promise(tensor.element_bytes > 0, "a tensor has a type");
    promise(tensor.span_elements().has_value(), "a tensor spans a number of elements");
    promise(tensor.box.inside(tensor.shape), "a shard lies in its tensor");
  }
  (void)tree_text(tree->tree, 1000);
}

}  // namespace tutti::fuzz
