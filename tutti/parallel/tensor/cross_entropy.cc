// Each rank has some logits of every token. The ranks exchange four numbers for each token: the largest logit m, the
// sum s of exp(x - m), the target's logit (0 if another rank has it) and, for smoothing, the sum of the logits. From
// them every rank computes M = max m, S = sum of s exp(m - M), and the loss log S + (M - x_target).
//
// The logits are by far the largest tensor of a language model. So they are processed in runs of rows that fit in the
// cache, once forward and once backward. Forward leaves exp(x - m) in a buffer. Backward scales the buffer and
// subtracts the target, in place. The buffer then is the gradient.
#include "tutti/parallel/tensor/cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tutti/base/kernels/elementwise.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/tensor_bytes.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

constexpr char kWho[] = "vocab_parallel_cross_entropy";
constexpr std::int64_t kRunElements = std::int64_t(1) << 17;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct LossCall {
  Group group;
  std::int64_t words = 0;  // of the whole vocabulary
  std::int64_t mine = 0;   // of these, on this rank: the first columns of its logits
  double smoothing = 0;
  bool keeps = false;  // backward will come
  bool overwrites = false;
  // Of the targets that this rank has: which tokens, which of its words. On a GPU, where the host would wait for their
  // number, of all tokens; `others`, bool[tokens], says which targets other ranks have, `outside` which nobody has.
  at::Tensor places, columns, others, outside;
  // For backward: exp(x - m), [tokens, v]; and what it has to be multiplied by to be the probability, [tokens].
  at::Tensor exponentials, to_probability;
  at::ScalarType type = at::kFloat;  // of the logits
};

at::ScalarType compute_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// f(first row, rows) for runs of rows of a matrix; on a GPU all are one.
template <class Act>
void for_runs(const at::Tensor& matrix, Act act) {
  const std::int64_t rows = matrix.size(0);
  if (!matrix.device().is_cpu()) return act(0, rows);
  const std::int64_t each = std::max<std::int64_t>(1, kRunElements / std::max<std::int64_t>(1, matrix.size(1)));
  for (std::int64_t first = 0; first < rows; first += each) act(first, std::min(each, rows - first));
}

// This rank's four numbers for each token, [4, tokens], and `call.exponentials`.
at::Tensor own_numbers(LossCall& call, const at::Tensor& logits) {
  const std::int64_t tokens = logits.size(0), all = logits.size(1);
  const auto options = logits.options().dtype(compute_type(logits));
  const at::Tensor numbers = at::zeros({4, tokens}, options);
  const at::Tensor largest = numbers[0], sums = numbers[1], targets = numbers[2], totals = numbers[3];
  targets.index_copy_(0, call.places,
                      logits.view({-1}).index_select(0, call.places * all + call.columns).to(targets.scalar_type()));
  if (call.others.defined()) targets.masked_fill_(call.others, 0);
  if (call.outside.defined()) targets.masked_fill_(call.outside, kNaN);
  if (call.mine == 0) {
    largest.fill_(-std::numeric_limits<double>::infinity());
    if (call.keeps) call.exponentials = at::zeros({tokens, all}, options);
    return numbers;
  }
  const bool in_place = call.overwrites && logits.scalar_type() == compute_type(logits);
  at::Tensor buffer;
  if (call.keeps) buffer = in_place ? logits : at::empty({tokens, all}, options);
  for_runs(logits, [&](std::int64_t first, std::int64_t rows) {
    const at::Tensor x = logits.narrow(0, first, rows).narrow(1, 0, call.mine);
    const at::Tensor exponentials = buffer.defined() ? buffer.narrow(0, first, rows).narrow(1, 0, call.mine)
                                                     : at::empty({rows, call.mine}, options);
    if (!exponentials.is_alias_of(x)) exponentials.copy_(x);
    at::Tensor total = totals.narrow(0, first, rows);
    if (call.smoothing > 0) at::sum_out(total, exponentials, 1);
    if (!exponentials.device().is_cpu()) {
      largest.copy_(exponentials.amax(1));
      exponentials.sub_(largest.unsqueeze(1)).exp_();
      sums.copy_(exponentials.sum(1));
      return;
    }
    AT_DISPATCH_FLOATING_TYPES(exponentials.scalar_type(), kWho, [&] {
      scalar_t* const of_rows = exponentials.data_ptr<scalar_t>();
      scalar_t *const m = largest.data_ptr<scalar_t>() + first, *const s = sums.data_ptr<scalar_t>() + first;
      const std::int64_t stride = exponentials.stride(0);
      at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          m[row] = largest_of(of_rows + row * stride, std::size_t(call.mine));
          s[row] = tutti::exponentials(of_rows + row * stride, std::size_t(call.mine), m[row]);
        }
      });
    });
  });
  if (call.keeps && call.mine < all) buffer.narrow(1, call.mine, all - call.mine).zero_();
  call.exponentials = buffer;
  return numbers;
}

struct CrossEntropyNode {
  static constexpr const char* kName = kWho;
  using State = LossCall;

  static at::Tensor forward(AutogradContext*, LossCall& call, const at::Tensor& given) {
    const at::Tensor logits = given.detach().reshape({-1, given.size(-1)}).contiguous();
    const at::Tensor numbers = own_numbers(call, logits);
    const int ranks = ranks_of(call.group);
    at::Tensor all = numbers.unsqueeze(0);
    if (ranks > 1) {
      all = at::empty({ranks, 4, numbers.size(1)}, numbers.options());
      run_on_stream(call.group, tensor_requests::parts(call.group, Kind::kAllGather, numbers, all, ReduceOp::kSum));
    }
    const at::Tensor largest = all.select(1, 0).amax(0);
    const at::Tensor sums = (all.select(1, 1) * (all.select(1, 0) - largest).exp()).sum(0);
    if (call.keeps) call.to_probability = (numbers[0] - largest).exp() / sums;
    if (call.keeps && call.outside.defined()) call.to_probability.masked_fill_(call.outside, kNaN);
    // Differences of logits first: those of large ones are exact, their sum with a small logarithm is not.
    const at::Tensor log_sum = sums.log();
    at::Tensor loss = log_sum + (largest - all.select(1, 2).sum(0));
    if (call.smoothing > 0) {
      const at::Tensor mean = all.select(1, 3).sum(0) / double(call.words);
      loss = loss * (1 - call.smoothing) + (log_sum + (largest - mean)) * call.smoothing;
    }
    return loss.view(given.sizes().slice(0, std::size_t(given.dim() - 1)));
  }

  static variable_list backward(AutogradContext*, LossCall& call, const variable_list& gradients) {
    TUTTI_REQUIRE(call.exponentials.defined(), kWho,
                  ": backward() ran through it before, and its buffer became the gradient; compute the loss again");
    at::Tensor result = std::exchange(call.exponentials, at::Tensor());
    const std::int64_t all = result.size(1);
    const at::Tensor of_loss = gradients[0].reshape({-1}).to(result.scalar_type());
    const at::Tensor factor = of_loss * call.to_probability;
    const at::Tensor smoothed = of_loss * (call.smoothing / double(call.words));
    for_runs(result, [&](std::int64_t first, std::int64_t rows) {
      const at::Tensor words = result.narrow(0, first, rows).narrow(1, 0, call.mine);
      words.mul_(factor.narrow(0, first, rows).unsqueeze(1));
      if (call.smoothing > 0) words.sub_(smoothed.narrow(0, first, rows).unsqueeze(1));
    });
    const at::Tensor of_targets = of_loss.index_select(0, call.places) * (call.smoothing - 1);
    if (call.others.defined()) of_targets.masked_fill_(call.others, 0);
    result.view({-1}).index_add_(0, call.places * all + call.columns, of_targets);
    std::vector<std::int64_t> sizes = gradients[0].sizes().vec();
    sizes.push_back(all);
    return {result.view(sizes).to(call.type)};
  }
};

void require_sensible(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words, std::int64_t all,
                      double smoothing) {
  TUTTI_REQUIRE(smoothing >= 0 && smoothing < 1, kWho, ": label smoothing of ", smoothing,
                ", expected 0 or more and less than 1");
  TUTTI_REQUIRE(words >= 1 && words <= all, kWho, ": a vocabulary of ", words, " words, expected 1 to ", all,
                ", which is how many logits all ranks have together");
  TUTTI_REQUIRE(targets.defined() && targets.scalar_type() == at::kLong &&
                    targets.sizes() == logits.sizes().slice(0, std::size_t(logits.dim() - 1)),
                kWho, ": the targets are ", describe(targets), ", expected i64 of the shape of ", describe(logits),
                " without its last dimension");
  if (targets.numel() == 0 || !targets.device().is_cpu()) return;
  const auto [least, most] = at::aminmax(targets);
  for (const std::int64_t target : {least.item<std::int64_t>(), most.item<std::int64_t>()})
    TUTTI_REQUIRE(target >= 0 && target < words, kWho, ": the target ", target,
                  " is not in the vocabulary: expected 0 to ", words - 1);
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const Group& group, const at::Tensor& logits, const at::Tensor& targets,
                                        const CrossEntropyOptions& options) {
  require_memory(logits, std::string(kWho) + ": logits");
  TUTTI_REQUIRE(logits.dim() >= 1 && logits.is_floating_point(), kWho, ": the logits are ", describe(logits),
                ", expected [..., words of this rank] of a floating type");
  const std::int64_t each = logits.size(-1), all = each * ranks_of(group), first = each * rank_in(group);
  LossCall call{.group = group, .type = logits.scalar_type()};
  call.words = options.words > 0 ? options.words : all;
  require_sensible(logits, targets, call.words, all, options.label_smoothing);
  call.mine = std::clamp<std::int64_t>(call.words - first, 0, each);
  call.smoothing = options.label_smoothing;
  call.keeps = c10::GradMode::is_enabled() && logits.requires_grad();
  call.overwrites = options.overwrite_logits && logits.is_contiguous();
  const auto is_outside = [](const at::Tensor& ids, std::int64_t count) {
    return ids.lt(0).logical_or_(ids.ge(count));
  };
  const at::Tensor given = targets.reshape({-1}), local = given - first, others = is_outside(local, each);
  if (targets.device().is_cpu()) {
    call.places = at::nonzero(others.logical_not()).view({-1});
    call.columns = local.index_select(0, call.places);
  } else {
    call.places = at::arange(local.numel(), local.options());
    call.columns = local.clamp(0, each - 1);
    call.others = others;
    call.outside = is_outside(given, call.words);
  }
  return autograd::apply_node<CrossEntropyNode>(std::move(call), logits);
}

}  // namespace tutti
