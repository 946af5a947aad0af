#pragma once
// Gradients of large tables of which a step touches a few rows.
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tutti {

// The names of the parameters whose modules (torch::nn::Embedding, EmbeddingBag) were made with sparse(true).
std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace tutti
