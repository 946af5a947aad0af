#include "tutti/parallel/gradients/findings.h"

#include <algorithm>
#include <cmath>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/gradients/tensor_math.h"

namespace tutti {

void GradientFindings::note(const NonFinite& found) { first_ = std::min(first_, found.number()); }

void GradientFindings::check(const at::Tensor& values, const NonFinite& found) {
  if (values.device().is_cpu()) return add(values, found);
  if (values.numel() > 0) add(greatest_magnitude(values), found);
}

void GradientFindings::add(const at::Tensor& averages, const NonFinite& found, SumOfSquares GradientFindings::*into) {
  const Open open{averages, found, into};
  if (!averages.device().is_cpu())
    open_.push_back(open);
  else if (into)
    take(open, squares_of({&averages, 1}).front());
  else if (!all_finite(averages))
    note(found);
}

void GradientFindings::take(const Open& open, const SumOfSquares& squares_of_open) {
  if (!squares_of_open.finite()) note(open.found);
  if (open.into) this->*open.into += squares_of_open;
}

void GradientFindings::settle() {
  std::vector<at::Tensor> tensors;
  for (const Open& open : open_) tensors.push_back(open.values);
  const std::vector<SumOfSquares> all = squares_of(tensors);
  for (std::size_t i = 0; i < all.size(); ++i) take(open_[i], all[i]);
  open_.clear();
}

std::optional<NonFinite> GradientFindings::agree(const Group& group) {
  settle();
  return NonFinite::of(all_reduce(group, first_, ReduceOp::kMin));
}

std::string non_finite_over_ranks(const Group& group, const Group& model, GradientFindings& findings,
                                  const ParameterName& name) {
  const auto found = findings.agree(group);
  std::string sentence;
  if (found) sentence = non_finite_gradient(name(found->parameter), found->rank);
  if (model && all_reduce(model, std::int64_t(!sentence.empty()), ReduceOp::kMax) != 0 && sentence.empty())
    sentence = "a gradient of another part of the model has a NaN or an infinity";
  return sentence;
}

GradientNorm norm_over_ranks(const Group& group, const Group& model, GradientFindings& findings,
                             const ParameterName& name) {
  findings.settle();
  const auto over_ranks = [&](double mine, double of_all) {
    const double sum = all_reduce(group, mine) + of_all;
    return model ? all_reduce(model, sum) : sum;
  };
  const double squares = over_ranks(findings.squares.value, findings.tail_squares.value);
  GradientNorm result{.norm = std::sqrt(squares), .non_finite = {}};
  if (std::isfinite(squares)) return result;
  result.non_finite = non_finite_over_ranks(group, model, findings, name);
  if (!result.finite()) return result;
  result.norm = SumOfSquares{squares, over_ranks(findings.squares.scaled, findings.tail_squares.scaled)}.norm();
  if (!std::isfinite(result.norm)) result.non_finite = kNormOverflows;
  return result;
}

}  // namespace tutti
