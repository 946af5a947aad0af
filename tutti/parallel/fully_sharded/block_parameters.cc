#include "tutti/parallel/fully_sharded/block_parameters.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/module_names.h"

namespace tutti::fully_sharded {
namespace {

// The modules that the patterns name, without parameters yet.
std::vector<BlockParameters> named_blocks(const torch::nn::Module& model, const std::vector<std::string>& patterns) {
  std::vector<BlockParameters> blocks;
  std::vector<std::string> names;
  std::vector<bool> used(patterns.size(), false);
  const auto visit = [&](auto& self, const torch::nn::Module& parent, const std::string& prefix,
                         const std::string& outer) -> void {
    for (const auto& child : parent.named_children()) {
      const std::string name = prefix + child.key();
      names.push_back(name);
      std::string inside = outer;
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (!name_fits(patterns[i], name)) continue;
        used[i] = true;
        if (inside == name) continue;
        TUTTI_REQUIRE(inside.empty(), "FullySharded: block ", name, " is inside block ", inside,
                      "; name one of the two");
        const bool again = std::any_of(blocks.begin(), blocks.end(),
                                       [&](const auto& block) { return block.module == child.value().get(); });
        if (!again) blocks.push_back({.name = name, .module = child.value().get(), .parameters = {}});
        inside = name;
      }
      self(self, *child.value(), name + ".", inside);
    }
  };
  visit(visit, model, "", "");
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (!used[i])
      throw Exception(invalid_argument(detail::words("FullySharded: no module is named \"", patterns[i], "\""),
                                       did_you_mean(nearest(patterns[i], names))));
  return blocks;
}

}  // namespace

std::vector<BlockParameters> block_parameters(const torch::nn::Module& model,
                                              const std::vector<std::string>& patterns) {
  std::vector<BlockParameters> blocks = named_blocks(model, patterns);
  blocks.insert(blocks.begin(), {.name = "", .module = &model, .parameters = {}});
  const auto all = parameters_of(model);
  std::unordered_map<const c10::TensorImpl*, std::size_t> owners;  // 0: the root
  for (const auto& [name, tensor] : all) {
    std::size_t owner = 0;
    for (std::size_t b = 1; b < blocks.size(); ++b)
      if (name.starts_with(blocks[b].name + ".")) owner = b;
    const auto [known, first] = owners.emplace(tensor.unsafeGetTensorImpl(), owner);
    if (!first && known->second != owner) known->second = 0;
  }
  for (const auto& parameter : without_repeats(all))
    blocks[owners.at(parameter.tensor.unsafeGetTensorImpl())].parameters.push_back(parameter);
  return blocks;
}

}  // namespace tutti::fully_sharded
