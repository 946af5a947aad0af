// The ranks exchange mean, sum of squared distances from the mean, and count, for each channel. Every rank merges them
// in the order of ranks (Chan et al., 1979), in f64, so that all ranks have the same bits and nothing cancels. Backward
// needs two sums over the whole batch: of the gradient, and of the gradient times the normalised input.
#include "tutti/parallel/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <span>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

struct Moments {
  at::Tensor mean, variance;  // f64 [channels]
  double count = 0;           // values for each channel
};

// [channels] as [1, channels, 1].
at::Tensor wide(const at::Tensor& of_channels) { return of_channels.view({1, -1, 1}); }
at::Tensor flat(const at::Tensor& batch) {
  std::int64_t places = 1;
  for (std::int64_t d = 2; d < batch.dim(); ++d) places *= batch.size(d);
  return batch.reshape({batch.size(0), batch.size(1), places});
}
at::Tensor channel_sums(const at::Tensor& flat_batch) {
  return flat_batch.sum(at::IntArrayRef{0, 2}, false, at::kDouble);
}

// By rank, from the last column of what the ranks sent. Of a GPU's tensors the host exchanges its own numbers: reading
// them there would make it wait.
std::vector<double> counts_of_all(const Group& group, const at::Tensor& sent, double mine) {
  std::vector<double> counts(std::size_t(group.size()));
  if (sent.device().is_cpu())
    for (int r = 0; r < group.size(); ++r) counts[std::size_t(r)] = sent[r][-1].item<double>();
  else
    all_gather(group, std::span<const double>(&mine, 1), std::span(counts));
  return counts;
}

Moments moments_of_all(const Group& group, const at::Tensor& x) {
  const auto channels = x.size(1);
  const double count = double(x.size(0) * x.size(2));
  const auto options = x.options().dtype(at::kDouble);
  const auto mine = at::zeros({2 * channels + 1}, options);
  if (count > 0) {
    const auto mean = channel_sums(x) / count;
    mine.narrow(0, 0, channels).copy_(mean);
    mine.narrow(0, channels, channels).copy_(channel_sums((x - wide(mean.to(x.scalar_type()))).square()));
    mine[2 * channels].fill_(count);
  }
  const auto all = at::empty({group.size(), 2 * channels + 1}, options);
  run_on_stream(group, tensor_requests::parts(group, Kind::kAllGather, mine, all, ReduceOp::kSum));
  Moments together{at::zeros({channels}, options), at::zeros({channels}, options)};
  const std::vector<double> counts = counts_of_all(group, all, count);
  for (int r = 0; r < group.size(); ++r) {
    const double n = counts[std::size_t(r)];
    if (n == 0) continue;
    const auto mean = all[r].narrow(0, 0, channels), squares = all[r].narrow(0, channels, channels);
    const auto apart = mean - together.mean;
    const double total = together.count + n;
    together.mean += apart * (n / total);
    together.variance += squares + apart.square() * (together.count * n / total);
    together.count = total;
  }
  TUTTI_REQUIRE(together.count > 1, "sync_batch_norm: all ranks together have ", std::int64_t(together.count),
                " value for each channel (this one has ", describe(x), "); expected 2 or more to normalise over");
  together.variance /= together.count;
  return together;
}

// What evaluation normalises by.
struct Running {
  at::Tensor mean, variance;  // either may be undefined
  double momentum = 0;

  void move_towards(const Moments& moments) const {
    const double unbiased = moments.count / (moments.count - 1);
    if (mean.defined()) mean.lerp_(moments.mean.to(mean.scalar_type()), momentum);
    if (variance.defined()) variance.lerp_((moments.variance * unbiased).to(variance.scalar_type()), momentum);
  }
};

struct BatchNormCall {
  Group group;
  Running running;
  double eps;
  double count = 0;  // values for each channel, on all ranks
};

struct SyncBatchNormNode {
  static constexpr const char* kName = "sync_batch_norm";
  using State = BatchNormCall;

  static at::Tensor forward(AutogradContext* context, BatchNormCall& call, const at::Tensor& input,
                            const c10::optional<at::Tensor>& given_weight,
                            const c10::optional<at::Tensor>& given_bias) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()), bias = given_bias.value_or(at::Tensor());
    const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto x = flat(input).to(type);
    const auto moments = moments_of_all(call.group, x);
    call.count = moments.count;
    call.running.move_towards(moments);
    const auto mean = moments.mean.to(type), scale = (moments.variance + call.eps).rsqrt().to(type);
    context->save_for_backward({input, weight, mean, scale});
    auto out = (x - wide(mean)).mul_(wide(scale));
    if (weight.defined()) out.mul_(wide(weight.to(type)));
    if (bias.defined()) out.add_(wide(bias.to(type)));
    return out.view(input.sizes()).to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const BatchNormCall& call, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &mean = saved[2], &scale = saved[3];
    const auto type = mean.scalar_type();
    const auto channels = mean.size(0);
    const auto normal = (flat(input).to(type) - wide(mean)).mul_(wide(scale));
    const auto gradient = flat(gradients[0]).to(type);
    // Of the batch of this rank first: these are the gradients of bias and weight, which DataParallel averages.
    const auto sums = at::stack({channel_sums(gradient), channel_sums(gradient * normal)});
    const auto mine = sums.clone();
    run_on_stream(call.group, tensor_requests::all_reduce(sums, ReduceOp::kSum));
    const auto means = (sums / call.count).to(type);
    auto of_input = (gradient - wide(means[0])).sub_(normal * wide(means[1])).mul_(wide(scale));
    if (weight.defined()) of_input.mul_(wide(weight.to(type)));
    const auto like_weight = [&](const at::Tensor& of_channels) {
      return weight.defined() ? of_channels.to(weight.scalar_type()).view({channels}) : at::Tensor();
    };
    return {of_input.view(input.sizes()).to(input.scalar_type()), like_weight(mine[1]), like_weight(mine[0])};
  }
};

}  // namespace

at::Tensor sync_batch_norm(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& running_mean, const at::Tensor& running_var,
                           double momentum, double eps) {
  TUTTI_REQUIRE(input.defined() && input.dim() >= 2, "sync_batch_norm: the input is ", describe(input),
                "; expected [n, channels, ...]");
  const auto if_defined = [](const at::Tensor& t) { return t.defined() ? c10::optional<at::Tensor>(t) : c10::nullopt; };
  return autograd::apply_node<SyncBatchNormNode>({group, {running_mean, running_var, momentum}, eps}, input,
                                                 if_defined(weight), if_defined(bias));
}

}  // namespace tutti
