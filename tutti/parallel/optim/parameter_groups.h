#pragma once
// Parameters of one model that are stepped by different rules: mostly the same one with another learning rate or weight
// decay, as the param_groups of torch.optim.
//
//   const auto vectors = tutti::names_of(*model, [](const auto&, const at::Tensor& p) { return p.dim() < 2; });
//   tutti::AdamW optimizer(*model, {.lr = 1e-3, .weight_decay = 0.1},
//                          {{.names = vectors, .rule = tutti::AdamWOptions{.lr = 1e-3, .weight_decay = 0}}});
//   optimizer.set_lr(1e-4);      // of all groups
//   optimizer.set_lr(2e-4, 1);   // of the first that was listed
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/agree.h"
#include "tutti/parallel/optim/update_rule.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace tutti {

struct ParameterGroup {
  std::vector<std::string> names;  // of parameters, as the optimizer has them
  UpdateRule rule;
};

// The names of the module's parameters, each once, of which `wanted` says so.
std::vector<std::string> names_of(const torch::nn::Module& module,
                                  const std::function<bool(const std::string& name, const at::Tensor&)>& wanted);

// Which rule each parameter has. Group 0 are those that no other group lists.
class GroupedRules {
 public:
  // `parameters`: the names of all, in the order in which they are asked for. Throws Exception: an option out of its
  // range, a name that is no parameter's or is listed twice.
  GroupedRules(UpdateRule rest, std::vector<ParameterGroup> groups, const std::vector<std::string>& parameters);

  std::size_t group_of(std::size_t parameter) const { return group_of_[parameter]; }
  const UpdateRule& of(std::size_t parameter) const { return rules_[group_of_[parameter]]; }
  const UpdateRule& operator[](std::size_t group) const;  // throws for one that is not there
  std::size_t size() const { return rules_.size(); }
  void set_lr(double lr);  // of all groups; throws for one that is no rate
  void set_lr(double lr, std::size_t group);
  void set_weight_decay(double decay, std::size_t group);
  // What is compared between ranks: a value for each group.
  std::vector<NamedValue> named_values() const;

 private:
  std::vector<UpdateRule> rules_;
  std::vector<std::vector<std::string>> names_;  // by group; of group 0 none
  std::vector<std::size_t> group_of_;
};

}  // namespace tutti
