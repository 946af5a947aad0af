// {"state": {0: {"step": 5, "exp_avg": ...}, ...}, "param_groups": [{"lr": ..., "params": [0, 1, ...]}, ...]}: the
// numbers count through the groups. Those of one group are taken to be in the order of model.parameters(), which is
// that of the state_dict without its buffers. Shapes tell whether that guess holds: each tensor that is kept has the
// shape of its parameter, or none. Of several groups it does not hold (weights with weight decay first, then biases),
// and where shapes are equal nothing would tell.
#include "tutti/checkpoint/torch/torch_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tutti/base/text.h"
#include "tutti/checkpoint/tools/elements.h"

namespace tutti {
namespace {

constexpr const char* kStep = "step";
constexpr std::array<std::string_view, 3> kBuffers = {"running_mean", "running_var", "num_batches_tracked"};
constexpr const char* kHint = "give the names in the optimizer's order, one on each line: --parameters FILE";

std::string below(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

const ValueTree* member(const ValueTree& tree, std::string_view name) {
  const auto found =
      std::find_if(tree.members.begin(), tree.members.end(), [&](const ValueTree& one) { return one.name == name; });
  return found == tree.members.end() ? nullptr : &*found;
}

bool looks_like_one(const ValueTree& tree) {
  const ValueTree* const groups = member(tree, "param_groups");
  return member(tree, "state") && groups && groups->kind == ValueTree::Kind::kList;
}

// Names below `path` that are tensors, in the order of the file.
void collect_tensors(const TensorSource& source, const ValueTree& tree, const std::string& path,
                     const std::string& name, std::vector<std::string>& names) {
  if (tree.kind == ValueTree::Kind::kLeaf) {
    if (source.find({below(path, name), ""})) names.push_back(name);
    return;
  }
  for (const ValueTree& one : tree.members) collect_tensors(source, one, path, below(name, one.name), names);
}

bool is_buffer(const std::string& name) {
  const auto point = name.rfind('.');
  return std::find(kBuffers.begin(), kBuffers.end(), point == std::string::npos ? name : name.substr(point + 1)) !=
         kBuffers.end();
}

class Naming {
 public:
  Naming(const TensorSource& source, const TorchOptimizerOptions& options) : source_(source), options_(options) {}

  Result<TorchOptimizer> run() {
    const ValueTree* const tree = TUTTI_TRY(find_value(source_.about(), options_.optimizer));
    if (!looks_like_one(*tree))
      return Error{
          .code = Code::kNotFound,
          .detail = fmt::format("{} of {} is no state_dict() of an optimizer, which has state and param_groups",
                                options_.optimizer, source_.path())};
    const ValueTree& state = *member(*tree, "state");
    const ValueTree& groups = *member(*tree, "param_groups");
    const auto numbers = numbers_in(groups);
    const auto names = TUTTI_TRY(names_of(groups, numbers, keeps_tensors(state)));
    for (std::size_t p = 0; p < numbers.size(); ++p) {
      const ValueTree* const kept = member(state, numbers[p]);
      if (!kept && !state.members.empty()) continue;  // it never had a gradient
      if (kept) TUTTI_TRY(name_state(*kept, names[p]));
      out_.numbers.try_emplace({names[p], kStep}, options_.step);
    }
    for (const ValueTree& group : groups.members) collect_values(group, "optimizer.param_groups." + group.name);
    return std::move(out_);
  }

 private:
  // As they are called in `state`: "0", "1", ...
  static std::vector<std::string> numbers_in(const ValueTree& groups) {
    std::vector<std::string> numbers;
    for (const ValueTree& group : groups.members)
      if (const ValueTree* const params = member(group, "params"))
        for (const ValueTree& one : params->members) numbers.push_back(text_in(one));
    return numbers;
  }
  static std::string text_in(const ValueTree& leaf) {
    const auto* const text = leaf.value ? std::get_if<std::string>(&*leaf.value) : nullptr;
    return text ? *text : leaf.text;
  }

  bool keeps_tensors(const ValueTree& state) const {
    for (const ValueTree& kept : state.members)
      for (const ValueTree& one : kept.members)
        if (source_.find({below(options_.optimizer, "state." + kept.name + "." + one.name), ""})) return true;
    return false;
  }
  static std::ptrdiff_t used_groups(const ValueTree& groups) {
    return std::count_if(groups.members.begin(), groups.members.end(), [](const ValueTree& group) {
      const ValueTree* const params = member(group, "params");
      return params && !params->members.empty();
    });
  }

  // `has_state`: for some of them something is kept, which must not get the name of another.
  Result<std::vector<std::string>> names_of(const ValueTree& groups, const std::vector<std::string>& numbers,
                                            bool has_state) const {
    std::string from = "--parameters";
    std::vector<std::string> names = options_.parameters;
    if (names.empty()) {
      from = "its param_names";
      for (const ValueTree& group : groups.members)
        if (const ValueTree* const own = member(group, "param_names"))
          for (const ValueTree& one : own->members) names.push_back(text_in(one));
    }
    if (names.empty() && !numbers.empty() && !parse_int(numbers[0])) return numbers;  // names already
    if (names.empty()) {
      from = options_.model.empty() ? "the model" : options_.model;
      if (const auto used = used_groups(groups); used > 1 && has_state)
        return Error{.code = Code::kMismatch,
                     .detail = fmt::format("{} of {} has {} groups of parameters without names, which need not be in "
                                           "the order of {}",
                                           options_.optimizer, source_.path(), used, from),
                     .hint = kHint};
      collect_tensors(source_, *TUTTI_TRY(find_value(source_.about(), options_.model)), options_.model, "", names);
      std::erase_if(names, is_buffer);
    }
    if (names.size() == numbers.size()) return names;
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} of {} has {} parameters, and {} has {} names", options_.optimizer,
                                       source_.path(), numbers.size(), from, names.size()),
                 .hint = kHint};
  }

  Status name_state(const ValueTree& kept, const std::string& name) {
    const SourceTensor* const parameter = source_.find({below(options_.model, name), ""});
    if (!parameter)
      return Error{
          .code = Code::kNotFound,
          .detail = fmt::format("{} of {} keeps something for {}, and {} has no such tensor", options_.optimizer,
                                source_.path(), name, options_.model.empty() ? "the model" : options_.model),
          .hint = kHint};
    for (const ValueTree& one : kept.members) {
      const std::string path = below(options_.optimizer, "state." + kept.name + "." + one.name);
      const SourceTensor* const tensor = source_.find({path, ""});
      if (one.name == kStep) {
        out_.numbers[{name, kStep}] = TUTTI_TRY(step_of(one, path, tensor));
      } else if (tensor && !tensor->shape.empty() && tensor->shape != parameter->shape) {
        return Error{
            .code = Code::kMismatch,
            .detail = fmt::format("{} of {} is {}, and {}, which it would belong to, is {}", path, source_.path(),
                                  shape_text(tensor->shape), name, shape_text(parameter->shape)),
            .hint = kHint};
      } else if (tensor) {
        out_.tensors[{name, one.name}] = {path, ""};
      } else if (one.value) {
        out_.values.emplace(fmt::format("optimizer.state.{}.{}", name, one.name), *one.value);
      }
    }
    return {};
  }

  // A number, or a tensor of one; of early versions and others.
  Result<std::int64_t> step_of(const ValueTree& leaf, const std::string& path, const SourceTensor* tensor) const {
    constexpr double kMost = 1e15;
    double step = -1;
    if (tensor && tensor->elements() == 1 && is_numeric(tensor->dtype) && numbers_of(tensor->dtype) == 1) {
      std::vector<std::byte> bytes(tensor->element_bytes);
      TUTTI_TRY(source_.read({path, ""}, bytes));
      to_doubles(tensor->dtype, bytes.data(), 1, &step);
    } else if (const auto* const whole = leaf.value ? std::get_if<std::int64_t>(&*leaf.value) : nullptr) {
      step = double(*whole);
    }
    if (step >= 0 && step <= kMost && step == std::floor(step)) return std::int64_t(step);
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} of {} is {}, and no number of steps", path, source_.path(), leaf.text)};
  }

  void collect_values(const ValueTree& tree, const std::string& name) {
    if (tree.name == "params" || tree.name == "param_names") return;
    if (tree.value) out_.values.emplace(name, *tree.value);
    for (const ValueTree& one : tree.members) collect_values(one, name + "." + one.name);
  }

  const TensorSource& source_;
  const TorchOptimizerOptions& options_;
  TorchOptimizer out_;
};

std::string find_in(const ValueTree& tree, const std::string& path, int depth) {
  constexpr int kDeepest = 4;
  if (looks_like_one(tree)) return path;
  if (depth == kDeepest) return {};
  for (const ValueTree& one : tree.members)
    if (const std::string found = find_in(one, below(path, one.name), depth + 1); !found.empty()) return found;
  return {};
}

}  // namespace

Result<TorchOptimizer> read_torch_optimizer(const TensorSource& source, const TorchOptimizerOptions& options) {
  return Naming(source, options).run();
}

std::string find_torch_optimizer(const TensorSource& source) { return find_in(source.about(), "", 0); }

}  // namespace tutti
