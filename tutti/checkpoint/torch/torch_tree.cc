// A ShardedTensor (torch.distributed._shard) is a record whose state is a tuple: the shards of this rank, each a tensor
// and where it belongs (shard_offsets, shard_sizes), and what is known of all of it (size).
#include "tutti/checkpoint/torch/torch_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <unordered_set>

#include "tutti/checkpoint/torch/torch_file.h"

namespace tutti {
namespace {

using TorchKind = PickleNode::Kind;

constexpr int kDeepest = 200;

[[noreturn]] void fail(Code code, std::string detail) {
  throw Exception(Error{.code = code, .detail = std::move(detail)});
}

class TreeReading {
 public:
  explicit TreeReading(const Pickle& pickle)
      : pickle_(pickle), left_(16 * pickle.nodes.size() + (std::size_t(1) << 20)) {}

  TorchTree run() {
    out_.tree = tree_of(pickle_.root, "", "", 0);
    return std::move(out_);
  }

 private:
  [[noreturn]] static void corrupt(const std::string& path, const char* what) {
    fail(Code::kCorrupt, fmt::format("the pickle: {} {}", path.empty() ? "its object" : path, what));
  }

  std::string key_text(std::uint32_t number) const {
    const PickleNode& node = pickle_[number];
    switch (node.kind) {
      case TorchKind::kString:
      case TorchKind::kBytes:
      case TorchKind::kBig:
      case TorchKind::kName:
      case TorchKind::kRecord:
      case TorchKind::kForeign:
        return node.text;
      case TorchKind::kInt:
        return fmt::format("{}", node.whole);
      case TorchKind::kFloat:
        return fmt::format("{}", node.real);
      case TorchKind::kBool:
        return node.whole != 0 ? "True" : "False";
      case TorchKind::kNone:
        return "None";
      case TorchKind::kTuple: {
        std::string text;
        for (const std::uint32_t item : node.items) {
          const PickleNode& part = pickle_[item];
          text += (text.empty() ? "" : ", ") + (part.items.empty() ? key_text(item) : std::string("..."));
        }
        return "(" + text + ")";
      }
      case TorchKind::kList:
      case TorchKind::kSet:
      case TorchKind::kDict:
      case TorchKind::kStored:
      case TorchKind::kTensor:
      case TorchKind::kMark:
        return "...";
    }
    return {};
  }

  // The type of a key that has no text of its own, or of an item of a tuple that is the key; none: the key has one.
  std::optional<std::string> opaque_key(std::uint32_t number) const {
    const PickleNode& key = pickle_[number];
    switch (key.kind) {
      case TorchKind::kRecord:
      case TorchKind::kForeign:
        return key.text;
      case TorchKind::kTensor:
        return "torch.Tensor";
      case TorchKind::kStored:
        return type_of_storage(key);
      case TorchKind::kTuple:
        for (const std::uint32_t item : key.items)
          if (pickle_[item].kind != TorchKind::kTuple)
            if (const auto type = opaque_key(item)) return type;
        return {};
      case TorchKind::kNone:
      case TorchKind::kBool:
      case TorchKind::kInt:
      case TorchKind::kFloat:
      case TorchKind::kBig:
      case TorchKind::kString:
      case TorchKind::kBytes:
      case TorchKind::kName:
      case TorchKind::kList:
      case TorchKind::kSet:
      case TorchKind::kDict:
      case TorchKind::kMark:
        return {};
    }
    return {};
  }

  std::string type_of_storage(const PickleNode& stored) const {
    const bool has_type = stored.items.size() >= 2 && !pickle_[stored.items[1]].text.empty();
    return has_type ? pickle_[stored.items[1]].text : "torch.storage.UntypedStorage";
  }

  ValueTree tree_of(std::uint32_t number, std::string name, const std::string& path, int depth) {
    if (depth > kDeepest)
      fail(Code::kLimit, fmt::format("the pickle nests more than {} deep, or holds itself", kDeepest));
    if (left_-- == 0) fail(Code::kLimit, "the pickle unfolds into far more than it holds");
    const PickleNode& node = pickle_[number];
    switch (node.kind) {
      case TorchKind::kNone:
        return ValueTree::word(std::move(name), "None");
      case TorchKind::kBool:
        return ValueTree::leaf(std::move(name), node.whole != 0);
      case TorchKind::kInt:
        return ValueTree::leaf(std::move(name), node.whole);
      case TorchKind::kFloat:
        return ValueTree::leaf(std::move(name), node.real);
      case TorchKind::kString:
        return ValueTree::leaf(std::move(name), node.text);
      case TorchKind::kBig:
      case TorchKind::kName:
        return ValueTree::word(std::move(name), node.text);
      case TorchKind::kBytes:
        return ValueTree::word(std::move(name), fmt::format("{} bytes", node.text.size()));
      case TorchKind::kStored:
        out_.skipped.push_back({path, type_of_storage(node), 1});
        return ValueTree::word(std::move(name), "a storage (not read)");
      case TorchKind::kTensor:
        return tensor(node, std::move(name), path);
      case TorchKind::kRecord:
        return record(node, std::move(name), path, depth);
      case TorchKind::kForeign:
        return foreign(number, std::move(name), path, depth);
      case TorchKind::kDict:
        return dict(node, std::move(name), path, depth);
      case TorchKind::kList:
      case TorchKind::kTuple:
      case TorchKind::kSet:
        return list(node, std::move(name), path, depth);
      case TorchKind::kMark:
        break;
    }
    corrupt(path, "is a mark");
  }

  ValueTree foreign(std::uint32_t number, std::string name, const std::string& path, int depth) {
    const std::string& type = pickle_[number].text;
    if (depth == 0)
      throw Exception(Error{.code = Code::kUnsupported,
                            .detail = fmt::format("the file is one object of type {}, which is not among what is read: "
                                                  "nothing of a file is ever executed",
                                                  type),
                            .hint = "save its state_dict()"});
    out_.skipped.push_back({path, type, tensors_within(number)});
    return ValueTree::word(std::move(name), type + " (not read)");
  }

  // How many tensors an object is made of; those that PyTorch rebuilds by a function that is not read are one each.
  std::uint64_t tensors_within(std::uint32_t object) {
    std::vector<std::uint32_t> left = {object};
    std::unordered_set<std::uint32_t> seen = {object};
    std::uint64_t tensors = 0;
    while (!left.empty()) {
      if (left_-- == 0) fail(Code::kLimit, "the pickle unfolds into far more than it holds");
      const PickleNode& node = pickle_[left.back()];
      left.pop_back();
      const bool rebuilt = node.kind == TorchKind::kForeign && !node.items.empty() &&
                           (node.text.starts_with("torch._utils._rebuild_") || node.text.starts_with("torch.storage."));
      if (rebuilt || node.kind == TorchKind::kTensor || node.kind == TorchKind::kStored) {
        ++tensors;
        continue;
      }
      for (const std::uint32_t item : node.items)
        if (seen.insert(item).second) left.push_back(item);
    }
    return tensors;
  }

  static std::string below(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

  ValueTree dict(const PickleNode& node, std::string name, const std::string& path, int depth) {
    ValueTree tree{.name = std::move(name), .kind = ValueTree::Kind::kDict, .text = {}, .value = {}, .members = {}};
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const std::string key = key_text(node.items[i]);
      if (auto type = opaque_key(node.items[i])) {
        out_.skipped.push_back({below(path, key), *std::move(type), tensors_within(node.items[i + 1])});
        continue;
      }
      tree.members.push_back(tree_of(node.items[i + 1], key, below(path, key), depth + 1));
    }
    return tree;
  }

  ValueTree list(const PickleNode& node, std::string name, const std::string& path, int depth) {
    ValueTree tree{.name = std::move(name),
                   .kind = node.kind == TorchKind::kTuple ? ValueTree::Kind::kTuple : ValueTree::Kind::kList,
                   .text = {},
                   .value = {},
                   .members = {}};
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string key = fmt::format("{}", i);
      tree.members.push_back(tree_of(node.items[i], key, below(path, key), depth + 1));
    }
    return tree;
  }

  std::vector<std::uint64_t> numbers(std::uint32_t number, const std::string& path) const {
    const PickleNode& node = pickle_[number];
    if ((node.kind != TorchKind::kTuple && node.kind != TorchKind::kList) || node.items.size() > 64)
      corrupt(path, "has a shape that is no short list of numbers");
    std::vector<std::uint64_t> out;
    for (const std::uint32_t item : node.items) {
      if (pickle_[item].kind != TorchKind::kInt || pickle_[item].whole < 0)
        corrupt(path, "has a shape with what is no size");
      out.push_back(std::uint64_t(pickle_[item].whole));
    }
    return out;
  }

  bool has_bit(const PickleNode& bits, const char* name) const {
    const PickleNode* const bit = pickle_member(pickle_, bits, name);
    return bit && bit->whole != 0;
  }
  static void check_bits(const TorchTensor& tensor) {
    constexpr std::string_view kSigned[] = {"F64", "F32", "F16", "BF16"};
    const bool is_complex = tensor.dtype.starts_with('C');
    const bool has_sign =
        is_complex || std::find(std::begin(kSigned), std::end(kSigned), tensor.dtype) != std::end(kSigned);
    if ((tensor.negated && !has_sign) || (tensor.conjugated && !is_complex))
      fail(Code::kUnsupported, fmt::format("the pickle: {} is {} with the {} bit, which is not read", tensor.name,
                                           tensor.dtype, tensor.negated ? "neg" : "conj"));
  }

  TorchTensor parse_tensor(const PickleNode& node, const std::string& path) const {
    const PickleNode& stored = pickle_[node.items[0]];
    const bool named =
        stored.kind == TorchKind::kStored && stored.items.size() >= 5 && pickle_[stored.items[0]].text == "storage" &&
        pickle_[stored.items[1]].kind == TorchKind::kName && pickle_[stored.items[2]].kind == TorchKind::kString;
    if (stored.items.size() >= 2 && pickle_[stored.items[1]].kind == TorchKind::kForeign)
      fail(Code::kUnsupported, fmt::format("the pickle: {} is a tensor in a {}, which is not among what is read", path,
                                           pickle_[stored.items[1]].text));
    if (!named) corrupt(path, "is a tensor without a storage");
    TorchTensor tensor{
        .name = path, .dtype = {}, .shape = {}, .box = {}, .storage = pickle_[stored.items[2]].text, .strides = {}};
    tensor.dtype = dtype_of_torch(pickle_[stored.items[1]].text);
    for (const std::uint32_t more : std::span(node.items).subspan(4)) {
      if (pickle_[more].kind == TorchKind::kName) {
        tensor.dtype = dtype_of_torch(pickle_[more].text);
      } else {
        tensor.negated = has_bit(pickle_[more], "neg");
        tensor.conjugated = has_bit(pickle_[more], "conj");
      }
    }
    tensor.element_bytes = element_bytes_of(tensor.dtype);
    if (tensor.element_bytes == 0) corrupt(path, "is a tensor without a type");
    check_bits(tensor);
    const PickleNode& offset = pickle_[node.items[1]];
    if (offset.kind != TorchKind::kInt || offset.whole < 0) corrupt(path, "is a tensor whose offset is no number");
    tensor.first = std::uint64_t(offset.whole);
    tensor.shape = numbers(node.items[2], path);
    tensor.strides = numbers(node.items[3], path);
    std::uint64_t bytes = 0;
    const auto elements = elements_of(tensor.shape);
    if (tensor.strides.size() != tensor.shape.size() || !elements ||
        __builtin_mul_overflow(*elements, tensor.element_bytes, &bytes) || !tensor.span_elements())
      corrupt(path, "is a tensor whose shape and strides make no sense");
    tensor.box = TensorBox::whole(tensor.shape);
    return tensor;
  }

  ValueTree tensor(const PickleNode& node, std::string name, const std::string& path) {
    out_.tensors.push_back(parse_tensor(node, path));
    const TorchTensor& tensor = out_.tensors.back();
    return ValueTree::word(std::move(name), tensor.dtype + shape_text(tensor.shape));
  }

  // The members of a record: those of a dict, or of the second of two (a dataclass with slots); nullptr: it has none.
  const PickleNode* members_of(const PickleNode& node) const {
    if (node.kind != TorchKind::kRecord || node.items.size() < 2) return nullptr;
    const PickleNode* state = &pickle_[node.items[1]];
    if (state->kind == TorchKind::kTuple && state->items.size() == 2) state = &pickle_[state->items[1]];
    return state->kind == TorchKind::kDict ? state : nullptr;
  }
  const PickleNode& member(const PickleNode& node, const char* key, const std::string& path) const {
    const PickleNode* const members = members_of(node);
    const PickleNode* const found = members ? pickle_member(pickle_, *members, key) : nullptr;
    if (!found) fail(Code::kCorrupt, fmt::format("the pickle: {} is a {} without {}", path, node.text, key));
    return *found;
  }
  std::uint32_t number_of(const PickleNode& node) const { return std::uint32_t(&node - pickle_.nodes.data()); }

  ValueTree record(const PickleNode& node, std::string name, const std::string& path, int depth) {
    if (node.text.ends_with(".ShardedTensor")) return sharded(node, std::move(name), path);
    if (const PickleNode* const members = members_of(node)) return dict(*members, std::move(name), path, depth);
    return ValueTree::word(std::move(name), node.text.substr(node.text.rfind('.') + 1));
  }

  ValueTree sharded(const PickleNode& node, std::string name, const std::string& path) {
    const PickleNode* const state = node.items.size() < 2 ? nullptr : &pickle_[node.items[1]];
    if (!state || state->kind != TorchKind::kTuple || state->items.size() < 2)
      corrupt(path, "is a ShardedTensor without its shards");
    const TensorShape shape = numbers(number_of(member(pickle_[state->items[1]], "size", path)), path);
    std::string here, dtype;
    for (const std::uint32_t item : pickle_[state->items[0]].items) {
      const PickleNode& shard = pickle_[item];
      const PickleNode& values = member(shard, "tensor", path);
      const PickleNode& about = member(shard, "metadata", path);
      if (values.kind != TorchKind::kTensor) corrupt(path, "has a shard that is no tensor");
      TorchTensor tensor = parse_tensor(values, path);
      const TensorBox box{numbers(number_of(member(about, "shard_offsets", path)), path),
                          numbers(number_of(member(about, "shard_sizes", path)), path)};
      if (box.extent != tensor.shape || !elements_of(shape) || !box.inside(shape))
        corrupt(path, "has a shard that does not lie where it says");
      tensor.shape = shape;
      tensor.box = box;
      here += (here.empty() ? "" : " and ") + box_text(box);
      dtype = tensor.dtype;
      out_.tensors.push_back(std::move(tensor));
    }
    return ValueTree::word(std::move(name), fmt::format("ShardedTensor {}{}, of which {} is here", dtype,
                                                        shape_text(shape), here.empty() ? "nothing" : here));
  }

  const Pickle& pickle_;
  std::size_t left_;
  TorchTree out_;
};

}  // namespace

bool TorchTensor::is_packed() const {
  std::uint64_t expected = 1;
  for (std::size_t d = strides.size(); d > 0; --d) {
    if (box.extent[d - 1] == 1) continue;
    if (strides[d - 1] != expected) return false;
    expected *= box.extent[d - 1];
  }
  return true;
}

std::optional<std::uint64_t> TorchTensor::span_elements() const {
  const TensorShape& extent = box.extent.empty() ? shape : box.extent;
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < extent.size(); ++d) {
    if (extent[d] == 0) return 0;
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(extent[d] - 1, strides[d], &reach) || __builtin_add_overflow(last, reach, &last))
      return {};
  }
  return last == ~std::uint64_t(0) ? std::nullopt : std::optional(last + 1);
}

Result<TorchTree> read_torch_tree(const Pickle& pickle) {
  try {
    return TreeReading(pickle).run();
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
