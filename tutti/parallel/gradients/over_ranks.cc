// Blame is a number that grows with the parameter, and within it with the rank: the least of all ranks' is the one that
// all name.
#include "tutti/parallel/gradients/over_ranks.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/comm/collectives.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr const char* kOfAnotherPart = "a gradient of another part of the model has a NaN or an infinity";

std::string blame_over_ranks(const Group& group, const AverageFacts& facts,
                             const std::function<const std::string&(std::int64_t shard)>& name) {
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  const std::int64_t ranks = group.size() + 1;  // the last stands for an unknown one
  std::int64_t blame = kNobody;
  if (facts.shard >= 0) blame = facts.shard * ranks + (facts.rank < 0 ? ranks - 1 : facts.rank);
  blame = all_reduce(group, blame, ReduceOp::kMin);
  if (blame == kNobody) return {};
  if (blame % ranks == ranks - 1) return non_finite_gradient(name(blame / ranks));
  return non_finite_gradient(name(blame / ranks), int(blame % ranks));
}

}  // namespace

GradientNorm norm_over_ranks(const Group& group, const Group& model, const AverageFacts& facts,
                             const std::function<const std::string&(std::int64_t shard)>& name) {
  double squares = all_reduce(group, facts.squares) + facts.tail_squares;
  const bool is_here = !std::isfinite(squares);
  if (model) squares = all_reduce(model, squares);
  GradientNorm result{.norm = std::sqrt(squares)};
  if (std::isfinite(squares)) return result;
  result.non_finite = blame_over_ranks(group, facts, name);
  if (result.non_finite.empty())
    result.non_finite = is_here ? "the squares of the gradients add up to more than f64 holds" : kOfAnotherPart;
  return result;
}

std::string non_finite_over_ranks(const Group& group, const Group& model, const AverageFacts& facts,
                                  const std::function<const std::string&(std::int64_t shard)>& name) {
  std::string blamed = blame_over_ranks(group, facts, name);
  if (model && all_reduce(model, std::int64_t(!blamed.empty()), ReduceOp::kMax) != 0 && blamed.empty())
    blamed = kOfAnotherPart;
  return blamed;
}

std::vector<StatePart> gather_state(const Group& group, std::span<const StatePart> own) {
  const auto ranks = std::size_t(group.size());
  std::vector<std::int64_t> mine, all(own.size() * 2 * ranks);  // begin and count of each part, by rank
  for (const auto& part : own) {
    mine.push_back(part.begin);
    mine.push_back(part.values.numel());
  }
  all_gather(group, std::span<const std::int64_t>(mine), std::span(all));

  std::vector<StatePart> whole;
  for (std::size_t k = 0; k < own.size(); ++k) {
    const auto& part = own[k];
    std::vector<std::int64_t> begins;
    std::vector<std::size_t> counts;
    for (std::size_t r = 0; r < ranks; ++r) {
      begins.push_back(all[(r * own.size() + k) * 2]);
      counts.push_back(std::size_t(all[(r * own.size() + k) * 2 + 1]));
    }
    StatePart* to = whole.empty() ? nullptr : &whole.back();
    if (!to || to->parameter != part.parameter || to->state != part.state) {
      std::int64_t elements = 1;
      for (const auto extent : part.shape) elements *= extent;
      to = &whole.emplace_back(part);
      to->begin = 0;
      to->values = at::empty({elements}, part.values.options());
    }
    const bool replica = std::equal(begins.begin() + 1, begins.end(), begins.begin()) &&
                         std::equal(counts.begin() + 1, counts.end(), counts.begin());
    if (replica) {
      to->values.narrow(0, part.begin, part.values.numel()).copy_(part.values);
      continue;
    }
    std::size_t total = 0;
    for (const auto count : counts) total += count;
    const auto gathered = at::empty({std::int64_t(total)}, part.values.options());
    all_gather_v(group, part.values, gathered, counts);
    std::int64_t from = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      to->values.narrow(0, begins[r], std::int64_t(counts[r])).copy_(gathered.narrow(0, from, std::int64_t(counts[r])));
      from += std::int64_t(counts[r]);
    }
  }
  return whole;
}

}  // namespace tutti
