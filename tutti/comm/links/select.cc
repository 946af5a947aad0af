#include "tutti/comm/links/select.h"

#include <algorithm>
#include <numeric>

#include "tutti/base/text.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/planned_calls.h"
#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/predict.h"

namespace tutti::comm {
namespace {

constexpr int kKinds = int(Kind::kSend);  // the kinds that have plans
constexpr double kWorthIt = 0.9;          // of the simpler algorithm's time
constexpr std::size_t kLongest = std::size_t(1) << 40;
constexpr std::size_t kNoEnd = ~std::size_t(0);

// Bytes of the whole vector on a rank: all that the verb sends or receives.
std::size_t selected_bytes(const Request& request, int ranks) {
  const auto common = common_splits(request);
  if (has_common_splits(request.kind)) return std::reduce(common.begin(), common.end()) * size_of(request.dtype);
  const bool has_parts = gives_parts(request.kind) || gets_parts(request.kind);
  return request.count * (has_parts && !has_root(request.kind) ? std::size_t(ranks) : 1) * size_of(request.dtype);
}

}  // namespace

Selector::Selector(const Hosts& hosts, const Network& network, std::string forced)
    : choices_(kKinds), ranks_(hosts.ranks()) {
  const auto best = [&](Kind kind, bool uneven, std::size_t bytes) {
    const AlgorithmRow* chosen = nullptr;
    double least = 0;
    for (const AlgorithmRow& row : algorithm_table()) {
      if (row.kind != kind || (uneven && !row.uneven)) continue;
      if (forced == name(row.algorithm)) return row.algorithm;
      if (row.several_hosts && (hosts.count() < 2 || hosts.most() < 2)) continue;
      if (row.aside && bytes > PlannedCalls::kStaging) continue;
      const double time = predict(row.algorithm, kind, hosts, bytes, network);
      if (chosen && time >= least * kWorthIt) continue;
      chosen = &row;
      least = time;
    }
    return chosen ? chosen->algorithm : Algorithm::kDirect;
  };
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const bool uneven : {false, true}) {
      Stretches& stretches = uneven ? choices_[kind].uneven : choices_[kind].even;
      // Evaluates powers of two only. Each decides for all sizes up to twice itself.
      for (std::size_t bytes = 64; bytes <= kLongest; bytes *= 2) {
        const Algorithm algorithm = best(Kind(kind), uneven, bytes);
        if (!stretches.empty() && stretches.back().algorithm == algorithm)
          stretches.back().below = bytes * 2;
        else
          stretches.push_back({bytes * 2, algorithm});
      }
      stretches.back().below = kNoEnd;
    }
  }
}

Algorithm Selector::algorithm(const Request& request) const {
  const Choice& choice = choices_[std::size_t(request.kind)];
  const bool uneven = !request.in_splits.empty() || !request.out_splits.empty();
  const Stretches& stretches = uneven ? choice.uneven : choice.even;
  if (stretches.size() == 1) return stretches.front().algorithm;
  const std::size_t bytes = selected_bytes(request, ranks_);
  return std::find_if(stretches.begin(), stretches.end(), [&](const Stretch& s) { return bytes < s.below; })->algorithm;
}

std::string Selector::to_string() const {
  std::string text;
  for (int kind = 0; kind < kKinds; ++kind) {
    const Stretches& stretches = is_uneven(Kind(kind)) ? choices_[kind].uneven : choices_[kind].even;
    text += std::string(text.empty() ? "" : "\n") + name(Kind(kind)) + ":";
    for (const Stretch& stretch : stretches) {
      text += std::string(" ") + name(stretch.algorithm);
      if (stretch.below != kNoEnd) text += " below " + bytes_text(stretch.below) + ",";
    }
  }
  return text;
}

bool implements(Algorithm algorithm, Kind kind) {
  return std::ranges::any_of(algorithm_table(),
                             [&](const AlgorithmRow& row) { return row.kind == kind && row.algorithm == algorithm; });
}

Result<Plan> make_plan(Algorithm algorithm, Kind kind, const Shape& shape) {
  for (const AlgorithmRow& row : algorithm_table())
    if (row.kind == kind && row.algorithm == algorithm) return row.plan(shape);
  return Error{.code = Code::kUnsupported,
               .detail = detail::words("there is no ", name(algorithm), " for ", name(kind))};
}

}  // namespace tutti::comm
