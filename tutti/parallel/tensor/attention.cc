// A ring. Rank r keeps its queries. Keys and values are passed on, so that each rank has seen all of them after n
// steps. Rank r has chunks r and 2n - 1 - r of context_part(), called early and late here. So a causal mask leaves
// three cases, all of the same amount of work but the first, which has half a chunk more:
//
//   keys of this rank:           the usual triangle over its rows, which ascend
//   keys of a rank before it:    all queries see all of the early chunk, and nothing of the late one
//   keys of a rank behind it:    the late queries see both chunks, the early ones nothing
//
// The results of the steps are merged by the sums of their exponentials (online softmax). In backward the probabilities
// of a step follow from the sum over all steps, so each step's gradients are final. Those of queries add up on this
// rank. Those of keys and values follow the keys and values one rank behind, and are back after n steps.
#include "tutti/parallel/tensor/attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "tutti/parallel/tensor/attention_tiles.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

// Tags on the context group.
constexpr int kKeysTag = 0, kGradientsTag = 1;

struct AttentionCall {
  Group context;
  AttentionOptions options;
};

at::Tensor computed(const at::Tensor& tensor) {
  const at::Tensor packed = tensor.stride(-1) == 1 ? tensor.detach() : tensor.detach().contiguous();
  return packed.to(packed.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// ---- What a step computes ----

// One step: this rank's queries and the keys of one rank, and which rows of both.
struct RingStep {
  AttentionTask task;
  std::int64_t first_query = 0, queries = 0, keys = 0;

  at::Tensor of_queries(const at::Tensor& tensor) const { return tensor.narrow(0, first_query, queries); }
  at::Tensor of_keys(const at::Tensor& tensor) const { return tensor.narrow(0, 0, keys); }
};

class RingSteps {
 public:
  RingSteps(const AttentionCall& call, std::int64_t rows, double scale)
      : call_(call), ranks_(ranks_of(call.context)), rank_(rank_in(call.context)), rows_(rows), scale_(scale) {}

  int ranks() const { return ranks_; }
  int source(int step) const { return (rank_ - step + ranks_) % ranks_; }
  int next() const { return (rank_ + 1) % ranks_; }
  int previous() const { return (rank_ - 1 + ranks_) % ranks_; }

  RingStep with(int source) const {
    const AttentionOptions& options = call_.options;
    const SequencePart mine = context_part(rows_ * ranks_, rank_, ranks_);
    const SequencePart theirs = context_part(rows_ * ranks_, source, ranks_);
    RingStep ring_step{{options.causal && source == rank_, scale_, options.dropout, options.dropout_seed,
                        options.first_head, mine, theirs, options.first_seen},
                       0,
                       rows_,
                       rows_};
    if (!options.causal || source == rank_) return ring_step;
    if (source < rank_) {
      ring_step.keys = rows_ / 2;
      ring_step.task.keys = tensor_part(theirs, 0, 2);
    } else {
      ring_step.first_query = ring_step.queries = rows_ / 2;
      ring_step.task.queries = tensor_part(mine, 1, 2);
      if (options.first_seen.defined()) ring_step.task.first_seen = ring_step.of_queries(options.first_seen);
    }
    return ring_step;
  }

 private:
  const AttentionCall& call_;
  const int ranks_, rank_;
  const std::int64_t rows_;
  const double scale_;
};

// Adds what some more keys give to what others gave.
void merge(const at::Tensor& out, const at::Tensor& log_sum, const Attended& more) {
  const at::Tensor together = at::logaddexp(log_sum, more.log_sum);
  out.mul_((log_sum - together).exp_().unsqueeze(-1));
  out.addcmul_(more.out, (more.log_sum - together).exp_().unsqueeze(-1));
  log_sum.copy_(together);
}

// ---- What is sent ----

// Keys and values, [2, rows, batch, groups, dim], from rank to rank.
struct AttentionTransfer {
  at::Tensor arriving;
  TensorWork work = {};
  at::Tensor get() {
    work.get();
    return std::exchange(arriving, at::Tensor());
  }
};
AttentionTransfer pass_on(const Group& group, const RingSteps& steps, const at::Tensor& tensor, int tag) {
  AttentionTransfer transfer{at::empty_like(tensor)};
  TensorBatch batch(group);
  batch.send(tensor, steps.next(), tag).recv(transfer.arriving, steps.previous(), tag);
  transfer.work = batch.submit();
  return transfer;
}

double scale_of(const AttentionOptions& options, const at::Tensor& query) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(double(query.size(3)));
}

Attended forward_ring(const AttentionCall& call, const at::Tensor& query, const at::Tensor& key,
                      const at::Tensor& value) {
  const RingSteps steps(call, query.size(0), scale_of(call.options, query));
  const at::Tensor q = computed(query);
  at::Tensor both = steps.ranks() > 1 ? at::stack({key, value}) : at::Tensor();
  Attended result;
  for (int step = 0; step < steps.ranks(); ++step) {
    const bool last = step + 1 == steps.ranks();
    AttentionTransfer next;
    if (!last) next = pass_on(call.context, steps, both, kKeysTag);
    const RingStep ring_step = steps.with(steps.source(step));
    const at::Tensor k = computed(step == 0 ? key : both[0]), v = computed(step == 0 ? value : both[1]);
    const Attended some = attend(ring_step.of_queries(q), ring_step.of_keys(k), ring_step.of_keys(v), ring_step.task);
    if (step == 0) {
      result = some;
    } else {
      merge(ring_step.of_queries(result.out), ring_step.of_queries(result.log_sum), some);
    }
    if (!last) both = next.get();
  }
  return result;
}

AttentionGradients backward_ring(const AttentionCall& call, const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& value, const at::Tensor& out, const at::Tensor& log_sum,
                                 const at::Tensor& out_gradient) {
  const RingSteps steps(call, query.size(0), scale_of(call.options, query));
  const at::Tensor q = computed(query), of_out = computed(out_gradient);
  const at::Tensor product = (computed(out) * of_out).sum(-1);
  at::Tensor both = steps.ranks() > 1 ? at::stack({key, value}) : at::Tensor();
  at::Tensor of_query = at::zeros_like(q, at::MemoryFormat::Contiguous), of_both;
  AttentionTransfer gradients;
  for (int step = 0; step < steps.ranks(); ++step) {
    const bool last = step + 1 == steps.ranks();
    AttentionTransfer next;
    if (!last) next = pass_on(call.context, steps, both, kKeysTag);
    const RingStep ring_step = steps.with(steps.source(step));
    const at::Tensor k = computed(step == 0 ? key : both[0]), v = computed(step == 0 ? value : both[1]);
    std::vector<std::int64_t> sizes = k.sizes().vec();
    sizes.insert(sizes.begin(), 2);
    of_both = at::zeros(sizes, k.options());
    attend_backward(ring_step.of_queries(q), ring_step.of_keys(k), ring_step.of_keys(v), ring_step.of_queries(of_out),
                    ring_step.of_queries(log_sum), ring_step.of_queries(product), ring_step.task,
                    {ring_step.of_queries(of_query), ring_step.of_keys(of_both[0]), ring_step.of_keys(of_both[1])});
    if (step > 0) of_both.add_(gradients.get());
    if (steps.ranks() > 1) gradients = pass_on(call.context, steps, of_both, kGradientsTag);
    if (!last) both = next.get();
  }
  if (steps.ranks() > 1) of_both = gradients.get();
  return {of_query, of_both[0], of_both[1]};
}

// ---- Autograd ----

struct AttentionNode {
  static constexpr const char* kName = "attention";
  using State = AttentionCall;

  static at::Tensor forward(AutogradContext* context, const AttentionCall& call, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value) {
    const Attended result = forward_ring(call, query, key, value);
    const at::Tensor out = result.out.to(query.scalar_type());
    context->save_for_backward({query, key, value, out, result.log_sum});
    return out;
  }

  static variable_list backward(AutogradContext* context, const AttentionCall& call, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [of_query, of_key, of_value] =
        backward_ring(call, saved[0], saved[1], saved[2], saved[3], saved[4], gradients[0]);
    const auto type = saved[0].scalar_type();
    return {of_query.to(type), of_key.to(type), of_value.to(type)};
  }
};

void require_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const AttentionOptions& options) {
  const auto is = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() == 4 && tensor.is_floating_point() && tensor.numel() > 0;
  };
  TUTTI_REQUIRE(is(query) && is(key) && is(value) && key.sizes() == value.sizes() && query.size(1) == key.size(1) &&
                    query.size(3) == key.size(3) && key.scalar_type() == query.scalar_type() &&
                    value.scalar_type() == query.scalar_type(),
                "attention: query ", describe(query), ", key ", describe(key), ", value ", describe(value),
                ", expected [seq, batch, heads, dim] and twice [seq, batch, groups, dim] of one floating type");
  TUTTI_REQUIRE(query.size(0) == key.size(0), "attention: ", query.size(0), " queries and ", key.size(0),
                " keys, expected as many");
  head_share(query.size(2), key.size(2), 1);
  const at::Tensor& first = options.first_seen;
  TUTTI_REQUIRE(!first.defined() ||
                    (options.causal && first.scalar_type() == at::kLong && first.sizes() == query.sizes().slice(0, 2)),
                "attention: first_seen is ", describe(first), ", expected i64 [", query.size(0), ", ", query.size(1),
                "], and attention that is causal");
  TUTTI_REQUIRE(options.dropout >= 0 && options.dropout < 1, "attention: dropout of ", options.dropout,
                ", expected 0 or more and less than 1");
}

// ---- LibTorch's kernels ----

#if TUTTI_TORCH_AT_LEAST(2, 5)
// Whether LibTorch has a kernel that keeps no scores. None drops by position, sees documents or takes f64. Those of f32
// have no groups.
bool is_fused(const at::Tensor& query, const at::Tensor& key, const AttentionOptions& options) {
  if (!query.is_cuda() || options.dropout != 0 || options.first_seen.defined()) return false;
  if (query.size(3) % 8 != 0 || query.size(3) > 256) return false;
  return query.element_size() == 2 || (query.scalar_type() == at::kFloat && query.size(2) == key.size(2));
}

at::Tensor fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionOptions& options) {
  const auto by_head = [](const at::Tensor& tensor) { return tensor.permute({1, 2, 0, 3}); };
  return at::scaled_dot_product_attention(by_head(query), by_head(key), by_head(value), /*attn_mask=*/{},
                                          /*dropout_p=*/0, options.causal, scale_of(options, query),
                                          /*enable_gqa=*/query.size(2) != key.size(2))
      .permute({2, 0, 1, 3});
}
#endif

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options) {
  return ring_attention(Group{}, query, key, value, options);
}

at::Tensor ring_attention(const Group& context, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const AttentionOptions& options) {
  require_shapes(query, key, value, options);
  require_memory(query, "attention: query");
  if (ranks_of(context) > 1) equal_part(query.size(0), 2, "context parallelism", "rows of a rank (in two chunks)");
#if TUTTI_TORCH_AT_LEAST(2, 5)
  if (ranks_of(context) == 1 && is_fused(query, key, options)) return fused_attention(query, key, value, options);
#endif
  return autograd::apply_node<AttentionNode>({context, options}, query, key, value);
}

}  // namespace tutti
