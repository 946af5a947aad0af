#include "tutti/parallel/data_parallel/reducer/sparse_gradients.h"

#include <torch/nn/modules/embedding.h>

namespace tutti {

std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module) {
  std::vector<std::string> names;
  for (const auto& item : module->named_modules()) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get());
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(item.value().get());
    if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse()))
      names.push_back(item.key().empty() ? "weight" : item.key() + ".weight");
  }
  return names;
}

}  // namespace tutti
