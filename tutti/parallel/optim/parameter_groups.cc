#include "tutti/parallel/optim/parameter_groups.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

std::vector<std::string> names_of(const torch::nn::Module& module,
                                  const std::function<bool(const std::string& name, const at::Tensor&)>& wanted) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : without_repeats(parameters_of(module)))
    if (wanted(name, tensor)) names.push_back(name);
  return names;
}

GroupedRules::GroupedRules(UpdateRule rest, std::vector<ParameterGroup> groups,
                           const std::vector<std::string>& parameters)
    : rules_{std::move(rest)}, names_(1), group_of_(parameters.size(), 0) {
  check(rules_[0]).or_throw();
  std::unordered_map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i) numbers.emplace(parameters[i], i);
  for (auto& [names, rule] : groups) {
    const std::size_t group = rules_.size();
    check(rule).or_throw();
    for (const auto& name : names) {
      const auto found = numbers.find(name);
      if (found == numbers.end())
        throw Exception(invalid_argument(fmt::format("{}: parameter group {} has \"{}\", which is none of the {} "
                                                     "parameters of this optimizer",
                                                     tutti::name(rule), group, name, parameters.size()),
                                         parameters.empty() ? "" : "they are named like " + parameters.front()));
      auto& of = group_of_[found->second];
      if (of != 0)
        throw Exception(
            invalid_argument(fmt::format("{}: {} is in parameter group {}{}", tutti::name(rule), name, of,
                                         of == group ? std::string(" twice") : fmt::format(" and in {}", group)),
                             "list a parameter once: one rule steps it"));
      of = group;
    }
    rules_.push_back(std::move(rule));
    names_.push_back(std::move(names));
  }
}

const UpdateRule& GroupedRules::operator[](std::size_t group) const {
  if (group >= rules_.size())
    throw Exception(
        invalid_argument(fmt::format("there is no parameter group {}: this optimizer has {}", group, rules_.size()),
                         "group 0 are the parameters that no group lists"));
  return rules_[group];
}

void GroupedRules::set_lr(double lr, std::size_t group) {
  UpdateRule changed = (*this)[group];
  set_learning_rate(changed, lr);
  check(changed).or_throw();
  rules_[group] = std::move(changed);
}

void GroupedRules::set_weight_decay(double decay, std::size_t group) {
  UpdateRule changed = (*this)[group];
  tutti::set_weight_decay(changed, decay);
  check(changed).or_throw();
  rules_[group] = std::move(changed);
}

void GroupedRules::set_lr(double lr) {
  for (std::size_t group = 0; group < rules_.size(); ++group) set_lr(lr, group);
}

std::vector<NamedValue> GroupedRules::named_values() const {
  std::vector<NamedValue> values;
  for (std::size_t group = 0; group < rules_.size(); ++group)
    values.push_back({fmt::format("parameter group {}", group),
                      to_string(rules_[group]) + (group == 0 ? "" : ", of " + join(names_[group], ", "))});
  return values;
}

}  // namespace tutti
