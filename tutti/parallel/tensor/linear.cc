// Two nodes. What is sent, and what is computed meanwhile:
//
//   column, forward:   [SP: gather x]        y = x W'
//   column, backward:  dx = dy W             SP: x is gathered again meanwhile
//                      dW = dy' x            meanwhile dx is added up over the ranks (SP: each gets its rows of the
//                      sum)
//   row, forward:      y = sum of x W'       (SP: each its rows)
//   row, backward:     [SP: gather dy]       dx = dy W, dW = dy' x
//
// Tensors of more than two dimensions are taken as matrices of rows [n, features]; with SP the rows of a rank are then
// a contiguous run of them. The bias's gradient is the sum of the rows of dy.
//
// If ranks have no core to spare, communication and computation take turns on one core. The work and its order are the
// same, so it is submitted all the same.
#include "tutti/parallel/tensor/linear.h"

#include <ATen/Functions.h>

#include <string>
#include <utility>

#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/matrix_product.h"
#include "tutti/parallel/tensor/rows.h"
#include "tutti/tensor/autograd_collectives.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/tensor_requests.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

// The ranks that a layer is divided among.
struct DividedLayer {
  DividedLayer(const Group& ranks, bool by_sequence, bool with_bias)
      : group(ranks), sequence_parallel(by_sequence && ranks_of(ranks) > 1), has_bias(with_bias) {}
  Group group;
  bool sequence_parallel, has_bias;
};

at::Tensor matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

std::vector<std::int64_t> with_last(at::IntArrayRef sizes, std::int64_t last) {
  std::vector<std::int64_t> changed = sizes.vec();
  changed.back() = last;
  return changed;
}

// In the type that products are made in: the input's.
at::Tensor for_product(const at::Tensor& weight, const at::Tensor& input) { return weight.to(input.scalar_type()); }

// input times weight', plus the bias if there is one: in the shape of `input` but for the last dimension.
at::Tensor product(const at::Tensor& input, const at::Tensor& weight, const c10::optional<at::Tensor>& bias) {
  const at::Tensor rows = matrix(input), transposed = for_product(weight, input).t();
  at::Tensor out;
  if (bias) {
    out = at::empty({rows.size(0), weight.size(0)}, rows.options()).copy_(*bias);
    add_matrix_product(out, rows, transposed);
  } else {
    out = matrix_product(rows, transposed);
  }
  return out.view(with_last(input.sizes(), weight.size(0)));
}

// A gather of rows, a sum of rows: the tensor that will hold them, and the call under way.
struct LinearTransfer {
  at::Tensor result;
  TensorWork work = {};
  at::Tensor get() {
    work.get_on_stream();
    return result;
  }
};
LinearTransfer gather_rows(const Group& group, const at::Tensor& mine) {
  const at::Tensor packed = mine.contiguous();
  LinearTransfer all{empty_rows(packed, packed.size(0) * group.size())};
  all.work = all_gather_async(group, packed, all.result);
  return all;
}
LinearTransfer scatter_sum(const Group& group, const at::Tensor& whole) {
  LinearTransfer mine{empty_rows(whole, whole.size(0) / group.size())};
  mine.work = reduce_scatter_async(group, whole, mine.result);
  return mine;
}

// ---- The weight's gradient, at once or deferred ----

void accumulate_product(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  at::Tensor& sum = weight.mutable_grad();
  if (!sum.defined()) {
    sum = matrix_product(matrix(gradient).t(), matrix(input)).to(weight.scalar_type());
  } else if (sum.scalar_type() == input.scalar_type()) {
    add_matrix_product(sum, matrix(gradient).t(), matrix(input));
  } else {
    sum.add_(matrix_product(matrix(gradient).t(), matrix(input)));
  }
}

// Whether it goes into .grad later: then the graph gets none.
bool is_deferred(const at::Tensor& weight) { return WeightGradients::current() && weight.is_leaf(); }

// `input` is asked for when it is needed.
template <class Input>
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& gradient, Input input) {
  if (!is_deferred(weight)) return matrix_product(matrix(gradient).t(), matrix(input())).to(weight.scalar_type());
  WeightGradients::current()->put(
      [weight, gradient, input]() mutable { accumulate_product(weight, gradient, input()); });
  return {};
}

at::Tensor bias_gradient(AutogradContext* context, const DividedLayer& layer, const at::Tensor& gradient,
                         const at::Tensor& weight) {
  if (!layer.has_bias || !context->needs_input_grad(2)) return {};
  return matrix(gradient).sum({0}, /*keepdim=*/false, weight.scalar_type());
}

// ---- Nodes ----

struct ColumnNode {
  static constexpr const char* kName = "column_parallel_linear";
  using State = DividedLayer;

  static at::Tensor forward(AutogradContext* context, const DividedLayer& layer, const at::Tensor& input,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias) {
    context->save_for_backward({input, weight});
    return product(layer.sequence_parallel ? gathered_rows(layer.group, input) : input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const DividedLayer& layer, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const Group& group = layer.group;
    const bool later = is_deferred(weight), of_input = context->needs_input_grad(0);
    const at::Tensor gradient = gradients[0].contiguous();

    // A deferred gradient gathers its input when it runs.
    LinearTransfer whole_input{input};
    if (layer.sequence_parallel && context->needs_input_grad(1) && !later) whole_input = gather_rows(group, input);
    LinearTransfer input_gradient;
    if (of_input) {
      at::Tensor mine = matrix_product(matrix(gradient), for_product(weight, gradient));
      input_gradient.result = mine.view(with_last(gradient.sizes(), weight.size(1)));
      if (layer.sequence_parallel) {
        input_gradient = scatter_sum(group, input_gradient.result);
      } else if (ranks_of(group) > 1) {
        input_gradient.work = all_reduce_async(group, input_gradient.result);
      }
    }
    at::Tensor of_weight;
    if (context->needs_input_grad(1)) {
      of_weight = weight_gradient(weight, gradient, [whole_input, layer, later]() mutable {
        return later && layer.sequence_parallel ? gathered_rows(layer.group, whole_input.result) : whole_input.get();
      });
    }
    at::Tensor of_bias = bias_gradient(context, layer, gradient, weight);
    return {of_input ? input_gradient.get() : at::Tensor(), of_weight, of_bias};
  }
};

struct RowNode {
  static constexpr const char* kName = "row_parallel_linear";
  using State = DividedLayer;

  static at::Tensor forward(AutogradContext* context, const DividedLayer& layer, const at::Tensor& input,
                            const at::Tensor& weight, const c10::optional<at::Tensor>& bias) {
    context->save_for_backward({input, weight});
    if (ranks_of(layer.group) == 1) return product(input, weight, bias);
    at::Tensor out = product(input, weight, c10::nullopt);
    if (layer.sequence_parallel) {
      out = part_of_summed_rows(layer.group, out);
    } else {
      run_on_stream(layer.group, tensor_requests::all_reduce(out, ReduceOp::kSum));
    }
    if (bias) out.add_(for_product(*bias, out));
    return out;
  }

  static variable_list backward(AutogradContext* context, const DividedLayer& layer, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    at::Tensor of_input, of_weight;
    const at::Tensor mine = gradients[0].contiguous();
    const at::Tensor gradient = layer.sequence_parallel ? gathered_rows(layer.group, mine) : mine;
    if (context->needs_input_grad(0))
      of_input = matrix_product(matrix(gradient), for_product(weight, gradient)).view(input.sizes());
    if (context->needs_input_grad(1)) of_weight = weight_gradient(weight, gradient, [input] { return input; });
    return {of_input, of_weight, bias_gradient(context, layer, mine, weight)};
  }
};

// ---- What a call needs ----

void require_matching(const char* who, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  TUTTI_REQUIRE(weight.defined() && weight.dim() == 2, who, ": the weight is ", describe(weight),
                ", expected [outputs, inputs]");
  TUTTI_REQUIRE(input.defined() && input.dim() >= 1 && input.size(-1) == weight.size(1), who, ": the input is ",
                describe(input), ", expected [..., ", weight.size(1), "] for a weight of ", describe(weight));
  const auto type = input.scalar_type();
  const bool mixed = (type == at::kBFloat16 || type == at::kHalf) && weight.scalar_type() == at::kFloat;
  TUTTI_REQUIRE(type == weight.scalar_type() || mixed, who, ": the input is ", describe(input),
                ", of another type than the weight, ", describe(weight));
  TUTTI_REQUIRE(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)), who, ": the bias is ",
                describe(bias), ", expected [", weight.size(0), "]");
}

void require_rows(const char* who, const at::Tensor& input, int ranks) {
  TUTTI_REQUIRE(input.dim() >= 2, who, ": the input is ", describe(input),
                ", expected [seq, ..., features] with sequence parallelism");
  equal_part(input.size(0), ranks, who, "rows of a sequence");
}

c10::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt;
}

}  // namespace

at::Tensor column_parallel_linear(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                                  const at::Tensor& bias, bool sequence_parallel) {
  require_matching("column_parallel_linear", input, weight, bias);
  if (sequence_parallel) require_rows("column_parallel_linear", input, 1);
  return autograd::apply_node<ColumnNode>({group, sequence_parallel, bias.defined()}, input, weight, if_defined(bias));
}

at::Tensor row_parallel_linear(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias, bool sequence_parallel) {
  require_matching("row_parallel_linear", input, weight, bias);
  if (sequence_parallel) require_rows("row_parallel_linear", input, ranks_of(group));
  return autograd::apply_node<RowNode>({group, sequence_parallel, bias.defined()}, input, weight, if_defined(bias));
}

at::Tensor gather_columns(const Group& group, const at::Tensor& mine, const std::vector<std::int64_t>& blocks) {
  if (ranks_of(group) == 1) return mine;
  if (blocks.empty()) return autograd::gather_from_region(group, mine, -1);
  std::vector<at::Tensor> whole;
  std::int64_t first = 0;
  for (const std::int64_t block : blocks) {
    const std::int64_t part = block / group.size();
    whole.push_back(autograd::gather_from_region(group, mine.narrow(-1, first, part), -1));
    first += part;
  }
  return at::cat(whole, -1);
}

// ---- Modules ----

namespace {

constexpr char kColumn[] = "ColumnParallelLinear";
constexpr char kRow[] = "RowParallelLinear";

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const Group& group, ColumnParallelLinearOptions options)
    : group_(group), options_(std::move(options)) {
  TUTTI_REQUIRE(options_.in_features >= 1, kColumn, ": ", options_.in_features, " input features, expected 1 or more");
  weight = register_parameter("weight", draw_weights(layout_of("weight"), options_.initial, options_.dtype));
  if (options_.bias)
    bias = register_parameter("bias", draw_weights(layout_of("bias"), InitialWeights::constant(0), options_.dtype));
}

ParameterLayout ColumnParallelLinearImpl::layout_of(std::string_view name) const {
  TensorShape shape = {std::uint64_t(options_.out_features)};
  if (name == "weight") shape.push_back(std::uint64_t(options_.in_features));
  return ParameterLayout::divide(std::move(shape), 0, rank_in(group_), ranks_of(group_), kColumn, "output features",
                                 options_.blocks);
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor out = column_parallel_linear(group_, input, weight, options_.skip_bias_add ? at::Tensor() : bias,
                                                options_.sequence_parallel);
  return options_.gather_output ? gather_columns(group_, out, options_.blocks) : out;
}

RowParallelLinearImpl::RowParallelLinearImpl(const Group& group, RowParallelLinearOptions options)
    : group_(group), options_(std::move(options)) {
  TUTTI_REQUIRE(options_.out_features >= 1, kRow, ": ", options_.out_features, " output features, expected 1 or more");
  TUTTI_REQUIRE(options_.input_is_parallel || !options_.sequence_parallel, kRow,
                ": sequence_parallel with input_is_parallel = false, expected an input that is divided by features");
  weight = register_parameter("weight", draw_weights(layout_of("weight"), options_.initial, options_.dtype));
  if (options_.bias)
    bias = register_parameter("bias", draw_weights(layout_of("bias"), InitialWeights::constant(0), options_.dtype));
}

ParameterLayout RowParallelLinearImpl::layout_of(std::string_view name) const {
  const auto outputs = std::uint64_t(options_.out_features);
  if (name == "bias") return ParameterLayout::whole({outputs}, options_.sequence_parallel && ranks_of(group_) > 1);
  return ParameterLayout::divide({outputs, std::uint64_t(options_.in_features)}, 1, rank_in(group_), ranks_of(group_),
                                 kRow, "input features");
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  const bool divide = !options_.input_is_parallel && ranks_of(group_) > 1;
  return row_parallel_linear(group_, divide ? autograd::scatter_to_region(group_, input, -1) : input, weight,
                             options_.skip_bias_add ? at::Tensor() : bias, options_.sequence_parallel);
}

}  // namespace tutti
