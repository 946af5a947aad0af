#include "tutti/parallel/tensor/shard_linear.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <memory>

#include "tutti/base/text.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/tensor/autograd_collectives.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/module_names.h"

namespace tutti {
namespace {

constexpr char kShard[] = "shard_linear";
constexpr char kPlan[] = "shard_linears";

// Replaces the data of a parameter, not the tensor, which optimizers know.
void keep_part(const Group& group, at::Tensor& parameter, const ParameterLayout& layout) {
  if (!parameter.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor whole = parameter.detach().contiguous();
  if (ranks_of(group) > 1) {
    whole = whole.clone();
    broadcast(group, whole);
  }
  parameter.set_data(layout.part_of(whole));
  parameter.mutable_grad() = at::Tensor();
}

}  // namespace

LinearImpl::LinearImpl(std::int64_t in_features, std::int64_t out_features)
    : LinearImpl(torch::nn::LinearOptions(in_features, out_features)) {}

LinearImpl::LinearImpl(const torch::nn::LinearOptions& given) : options(given) { reset(); }

LinearImpl::LinearImpl(const torch::nn::LinearImpl& whole) : options(whole.options) {
  const auto copy = [](const at::Tensor& parameter) {
    return parameter.detach().clone().set_requires_grad(parameter.requires_grad());
  };
  weight = register_parameter("weight", copy(whole.weight), whole.weight.requires_grad());
  if (whole.bias.defined()) bias = register_parameter("bias", copy(whole.bias), whole.bias.requires_grad());
}

void LinearImpl::reset() {
  TUTTI_REQUIRE(!sharded_, kShard, ": reset() or clone() of a layer that is divided, expected one that is whole");
  const torch::nn::LinearImpl drawn(options);
  weight = register_parameter("weight", drawn.weight);
  bias = register_parameter("bias", drawn.bias, drawn.bias.defined());
}

ParameterLayout LinearImpl::layout_of(std::string_view name) const {
  return sharded_ ? layout_in(name, group_, shard_, kShard) : ParameterLayout::whole(shape_of(name));
}

TensorShape LinearImpl::shape_of(std::string_view name) const {
  const auto outputs = std::uint64_t(options.out_features()), inputs = std::uint64_t(options.in_features());
  return name == "weight" ? TensorShape{outputs, inputs} : TensorShape{outputs};
}

ParameterLayout LinearImpl::layout_in(std::string_view name, const Group& group, const LinearShard& shard,
                                      const std::string& who) const {
  const int rank = rank_in(group), ranks = ranks_of(group);
  if (const auto* const columns = std::get_if<ShardColumns>(&shard))
    return ParameterLayout::divide(shape_of(name), 0, rank, ranks, who, "output features", columns->blocks);
  if (name == "bias")
    return ParameterLayout::whole(shape_of(name), std::get<ShardRows>(shard).sequence_parallel && ranks > 1);
  return ParameterLayout::divide(shape_of(name), 1, rank, ranks, who, "input features");
}

void LinearImpl::shard(const Group& group, const LinearShard& shard, const std::string& who) {
  TUTTI_REQUIRE(!sharded_, who, ": the layer has been divided before");
  if (const auto* const rows = std::get_if<ShardRows>(&shard)) {
    TUTTI_REQUIRE(rows->input_is_parallel || !rows->sequence_parallel, who,
                  ": sequence_parallel with input_is_parallel = false, expected an input that is divided by features");
  }
  const ParameterLayout of_weight = layout_in("weight", group, shard, who),
                        of_bias = layout_in("bias", group, shard, who);
  keep_part(group, weight, of_weight);
  keep_part(group, bias, of_bias);
  group_ = group;
  shard_ = shard;
  sharded_ = true;
}

at::Tensor LinearImpl::forward(const at::Tensor& input) {
  if (!sharded_) return bias.defined() ? at::linear(input, weight, bias) : at::linear(input, weight);
  if (const auto* const columns = std::get_if<ShardColumns>(&shard_)) {
    const at::Tensor out = column_parallel_linear(group_, input, weight, bias, columns->sequence_parallel);
    return columns->gather_output ? gather_columns(group_, out, columns->blocks) : out;
  }
  const auto& rows = std::get<ShardRows>(shard_);
  const bool divide = !rows.input_is_parallel && ranks_of(group_) > 1;
  return row_parallel_linear(group_, divide ? autograd::scatter_to_region(group_, input, -1) : input, weight, bias,
                             rows.sequence_parallel);
}

Linear shard_linear(const torch::nn::Linear& whole, const Group& group, const LinearShard& shard) {
  Linear divided(*whole);
  divided->shard(group, shard, kShard);
  return divided;
}

// ---- Plans ----

namespace {

// A linear layer that an entry of the plan names.
struct Planned {
  std::string name;
  const LinearShard* shard = nullptr;
  std::shared_ptr<LinearImpl> layer;             // or, where it is to be replaced:
  std::shared_ptr<torch::nn::LinearImpl> whole;  // an ordinary layer in
  torch::nn::SequentialImpl* in = nullptr;       // a container
  std::string who() const { return std::string(kPlan) + ": " + name; }
};

Planned planned(const std::string& name, const std::shared_ptr<torch::nn::Module>& found, torch::nn::Module& parent,
                const LinearShard& shard) {
  Planned layer{.name = name, .shard = &shard};
  layer.layer = std::dynamic_pointer_cast<LinearImpl>(found);
  if (layer.layer) {
    TUTTI_REQUIRE(!layer.layer->is_sharded(), kPlan, ": ", name, " has been divided before");
    return layer;
  }
  layer.whole = std::dynamic_pointer_cast<torch::nn::LinearImpl>(found);
  TUTTI_REQUIRE(layer.whole, kPlan, ": ", name, " is a ", found->name(), ", expected a linear layer");
  layer.in = dynamic_cast<torch::nn::SequentialImpl*>(&parent);
  TUTTI_REQUIRE(layer.in, kPlan, ": ", name,
                " is a torch::nn::Linear, whose forward() cannot be changed (hint: declare it as tutti::Linear, which "
                "is the same until it is divided)");
  return layer;
}

void replace(const Planned& layer, const Group& group) {
  Linear divided(*layer.whole);
  divided->shard(group, *layer.shard, layer.who());
  const auto& children = layer.in->named_children();
  const auto at =
      std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.value() == layer.whole; });
  *(layer.in->begin() + (at - children.begin())) = torch::nn::AnyModule(divided);
  layer.in->replace_module(at->key(), divided);
}

}  // namespace

void shard_linears(torch::nn::Module& module, const Group& group, const LinearPlan& plan) {
  std::vector<Planned> layers;
  std::vector<std::string> names;
  std::vector<bool> used(plan.size(), false);
  const auto visit = [&](auto& self, torch::nn::Module& parent, const std::string& prefix) -> void {
    for (const auto& child : parent.named_children()) {
      const std::string name = prefix + child.key();
      names.push_back(name);
      const std::string* first = nullptr;
      for (std::size_t i = 0; i < plan.size(); ++i) {
        if (!name_fits(plan[i].first, name)) continue;
        TUTTI_REQUIRE(!first, kPlan, ": \"", first ? *first : "", "\" and \"", plan[i].first, "\" both name ", name);
        first = &plan[i].first;
        used[i] = true;
        layers.push_back(planned(name, child.value(), parent, plan[i].second));
      }
      self(self, *child.value(), name + ".");
    }
  };
  visit(visit, module, "");
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (!used[i]) {
      throw Exception(Error{.code = Code::kInvalidArgument,
                            .detail = detail::words(kPlan, ": no module is named \"", plan[i].first, "\""),
                            .hint = did_you_mean(nearest(plan[i].first, names))});
    }
  for (const Planned& layer : layers) {
    if (layer.layer) {
      layer.layer->shard(group, *layer.shard, layer.who());
    } else {
      replace(layer, group);
    }
  }
}

}  // namespace tutti
