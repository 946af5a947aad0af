#include "tutti/checkpoint/torch/pickle_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

using Meaning = PickleMeaning;

struct Known {
  std::string_view name;
  Meaning meaning;
};

constexpr Known kKnown[] = {
    {"collections.OrderedDict", Meaning::kDict},
    {"collections.defaultdict", Meaning::kDict},
    {"builtins.dict", Meaning::kDict},
    {"__builtin__.dict", Meaning::kDict},
    {"builtins.list", Meaning::kList},
    {"__builtin__.list", Meaning::kList},
    {"builtins.tuple", Meaning::kTuple},
    {"__builtin__.tuple", Meaning::kTuple},
    {"builtins.set", Meaning::kSet},
    {"__builtin__.set", Meaning::kSet},
    {"builtins.frozenset", Meaning::kSet},
    {"__builtin__.frozenset", Meaning::kSet},
    {"builtins.int", Meaning::kNothing},
    {"__builtin__.int", Meaning::kNothing},
    {"__builtin__.long", Meaning::kNothing},  // int in protocol 2
    {"builtins.float", Meaning::kNothing},
    {"__builtin__.float", Meaning::kNothing},
    {"builtins.getattr", Meaning::kMember},
    {"__builtin__.getattr", Meaning::kMember},
    {"_codecs.encode", Meaning::kBytes},
    {"torch.Size", Meaning::kTuple},
    {"torch.Tensor", Meaning::kNothing},
    {"torch.torch_version.TorchVersion", Meaning::kText},
    {"torch.device", Meaning::kText},
    {"torch.serialization._get_layout", Meaning::kText},
    {"torch._utils._rebuild_tensor", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v2", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v3", Meaning::kTypedTensor},
    {"torch._utils._rebuild_parameter", Meaning::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Meaning::kParameter},
    {"torch._utils._rebuild_wrapper_subclass", Meaning::kNothing},
    {"torch._tensor._rebuild_from_type_v2", Meaning::kFromType},
    {"torch.storage.UntypedStorage", Meaning::kNothing},
    {"torch.storage.TypedStorage", Meaning::kNothing},
    {"torch.distributed.remote_device._remote_device", Meaning::kRecord},
    {"torch.distributed._remote_device._remote_device", Meaning::kRecord},
};

constexpr std::string_view kTypes[] = {"Double", "Float", "Half", "BFloat16", "Long",          "Int",
                                       "Short",  "Char",  "Byte", "Bool",     "ComplexDouble", "ComplexFloat"};
constexpr std::string_view kTorchDTypes[] = {"float64",
                                             "float32",
                                             "float16",
                                             "bfloat16",
                                             "int64",
                                             "int32",
                                             "int16",
                                             "int8",
                                             "uint8",
                                             "uint16",
                                             "uint32",
                                             "uint64",
                                             "bool",
                                             "complex128",
                                             "complex64",
                                             "float8_e4m3fn",
                                             "float8_e5m2",
                                             "float8_e4m3fnuz",
                                             "float8_e5m2fnuz",
                                             "float8_e8m0fnu",
                                             "strided",
                                             "contiguous_format",
                                             "preserve_format"};
// Of torch.distributed._shard and what is below it, wherever in it a version has them.
constexpr std::string_view kShardModule = "torch.distributed._shard.";
constexpr std::string_view kShardClasses[] = {"ShardedTensor",        "Shard",
                                              "ShardMetadata",        "ShardedTensorMetadata",
                                              "TensorProperties",     "ChunkShardingSpec",
                                              "ShardingSpec",         "EnumerableShardingSpec",
                                              "DevicePlacementSpec",  "MEM_FORMAT_ENCODING",
                                              "MEM_FORMAT_ENCODINGS", "ProcessGroupState"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

}  // namespace

PickleMeaning meaning_of(std::string_view name) {
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](auto& k) { return k.name == name; });
  if (known != std::end(kKnown)) return known->meaning;
  if (name.starts_with(kShardModule) && contains(kShardClasses, name.substr(name.rfind('.') + 1)))
    return Meaning::kRecord;
  if (name.starts_with("torch.")) {
    std::string_view rest = name.substr(6);
    if (contains(kTorchDTypes, rest)) return Meaning::kNothing;
    if (rest.starts_with("cuda.")) rest.remove_prefix(5);
    if (rest.ends_with("Storage") && contains(kTypes, rest.substr(0, rest.size() - 7))) return Meaning::kNothing;
  }
  return Meaning::kForeign;
}

std::string printable(std::string_view text) {
  std::string out;
  for (const unsigned char c : text.substr(0, 120))
    out += c < 0x20 || c >= 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out;
}

void fail_pickle(Code code, std::string detail) { throw Exception(Error{.code = code, .detail = std::move(detail)}); }

}  // namespace tutti
