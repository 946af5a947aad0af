#pragma once
// Gradients of large tables of which a step touches a few rows.
#include <memory>
#include <string>
#include <vector>

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace tutti {

class Group;

// The names of the parameters whose modules (torch::nn::Embedding, EmbeddingBag) were made with sparse(true).
std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module);

// Every rank calls. `mine` is a sparse tensor of the shape of `parameter`, or undefined: no rows. The sum over all
// ranks divided by `divisor`, coalesced, the same bits on each. Only rows that some rank has travel: each rank gets
// those of all.
at::Tensor average_sparse(const Group& group, const at::Tensor& mine, const at::Tensor& parameter, double divisor);

}  // namespace tutti
