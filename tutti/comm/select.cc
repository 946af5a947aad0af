#include "tutti/comm/select.h"

#include <algorithm>
#include <iterator>

#include "tutti/base/text.h"
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/predict.h"

namespace tutti {
namespace {

struct Row {
  Kind kind;
  Algorithm algorithm;
  Plan (*plan)(const Shape&);
  bool uneven = false;         // understands splits
  bool several_hosts = false;  // at least two, and one of them with several ranks; else as good as another one
  bool aside = false;          // needs memory as long as the vector, more or less: for those that fit the staging
};

// Simpler ones first.
constexpr Row kTable[] = {
    {Kind::kAllReduce, Algorithm::kRecursiveDoubling, all_reduce_recursive_doubling},
    {Kind::kAllReduce, Algorithm::kRing, all_reduce_ring},
    {Kind::kAllReduce, Algorithm::kTwoLevel, all_reduce_two_level, false, true},
    {Kind::kAllReduce, Algorithm::kMesh, all_reduce_mesh},
    {Kind::kAllReduce, Algorithm::kHalvingDoubling, all_reduce_halving_doubling},
    {Kind::kAllReduce, Algorithm::kBruck, all_reduce_bruck},
    {Kind::kBroadcast, Algorithm::kBinomial, broadcast_binomial},
    {Kind::kBroadcast, Algorithm::kChain, broadcast_chain},
    {Kind::kBroadcast, Algorithm::kTwoLevel, broadcast_two_level, false, true},
    {Kind::kBroadcast, Algorithm::kVanDeGeijn, broadcast_van_de_geijn},
    {Kind::kReduce, Algorithm::kBinomial, reduce_binomial},
    {Kind::kReduce, Algorithm::kChain, reduce_chain},
    {Kind::kReduce, Algorithm::kTwoLevel, reduce_two_level, false, true},
    {Kind::kReduce, Algorithm::kVanDeGeijn, reduce_van_de_geijn},
    {Kind::kAllGather, Algorithm::kRing, all_gather_ring},
    {Kind::kAllGather, Algorithm::kMesh, all_gather_mesh},
    {Kind::kAllGather, Algorithm::kTwoLevel, all_gather_two_level, false, true},
    {Kind::kAllGather, Algorithm::kBruck, all_gather_bruck},
    {Kind::kReduceScatter, Algorithm::kRing, reduce_scatter_ring},
    {Kind::kReduceScatter, Algorithm::kMesh, reduce_scatter_mesh},
    {Kind::kReduceScatter, Algorithm::kTwoLevel, reduce_scatter_two_level, false, true, true},
    {Kind::kReduceScatter, Algorithm::kBruck, reduce_scatter_bruck, false, false, true},
    {Kind::kGather, Algorithm::kDirect, gather_direct},
    {Kind::kScatter, Algorithm::kDirect, scatter_direct},
    {Kind::kAllGatherV, Algorithm::kRing, all_gather_ring, true},
    {Kind::kAllGatherV, Algorithm::kMesh, all_gather_mesh, true},
    {Kind::kAllGatherV, Algorithm::kTwoLevel, all_gather_two_level, true, true},
    {Kind::kAllGatherV, Algorithm::kBruck, all_gather_bruck, true},
    {Kind::kReduceScatterV, Algorithm::kRing, reduce_scatter_ring, true},
    {Kind::kReduceScatterV, Algorithm::kMesh, reduce_scatter_mesh, true},
    {Kind::kReduceScatterV, Algorithm::kTwoLevel, reduce_scatter_two_level, true, true, true},
    {Kind::kReduceScatterV, Algorithm::kBruck, reduce_scatter_bruck, true, false, true},
    {Kind::kGatherV, Algorithm::kDirect, gather_direct, true},
    {Kind::kScatterV, Algorithm::kDirect, scatter_direct, true},
    {Kind::kAllToAll, Algorithm::kPairwise, all_to_all_pairwise, true},
    {Kind::kAllToAll, Algorithm::kBruck, all_to_all_bruck, false, false, true},
    {Kind::kBarrier, Algorithm::kDissemination, barrier_dissemination},
};

constexpr int kKinds = int(Kind::kSend);  // those with plans
constexpr std::size_t kStaging = 16 << 20;
constexpr double kWorthIt = 0.9;  // of the simpler one's time
constexpr std::size_t kLongest = std::size_t(1) << 40;
constexpr std::size_t kNoEnd = ~std::size_t(0);

// Of the whole vector on a rank: what the verb gives or takes altogether.
std::size_t bytes_of(const Request& request, int ranks) {
  std::size_t count = request.count;
  if (request.kind == Kind::kAllGather || request.kind == Kind::kReduceScatter || request.kind == Kind::kAllToAll)
    count *= std::size_t(ranks);
  const auto& splits = request.kind == Kind::kAllGatherV ? request.out_splits : request.in_splits;
  if (request.kind == Kind::kAllGatherV || request.kind == Kind::kReduceScatterV) {
    count = 0;
    for (const std::size_t part : splits) count += part;
  }
  return count * size_of(request.dtype);
}

}  // namespace

Selector::Selector(const Hosts& hosts, const Network& network, std::string forced)
    : choices_(kKinds), ranks_(hosts.ranks()) {
  const auto best = [&](Kind kind, bool uneven, std::size_t bytes) {
    const Row* chosen = nullptr;
    double least = 0;
    for (const Row& row : kTable) {
      if (row.kind != kind || (uneven && !row.uneven)) continue;
      if (forced == name(row.algorithm)) return row.algorithm;
      if (row.several_hosts && (hosts.count() < 2 || hosts.most() < 2)) continue;
      if (row.aside && bytes > kStaging) continue;
      const double time = predict(row.algorithm, kind, hosts, bytes, network);
      if (chosen && time > least * kWorthIt) continue;
      chosen = &row;
      least = time;
    }
    return chosen ? chosen->algorithm : Algorithm::kDirect;
  };
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const bool uneven : {false, true}) {
      Stretches& stretches = uneven ? choices_[kind].uneven : choices_[kind].even;
      // Of twice the size of the border below, in between nothing is looked at.
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
  const std::size_t bytes = bytes_of(request, ranks_);
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
  return std::any_of(std::begin(kTable), std::end(kTable),
                     [&](const Row& row) { return row.kind == kind && row.algorithm == algorithm; });
}

Result<Plan> make_plan(Algorithm algorithm, Kind kind, const Shape& shape) {
  for (const Row& row : kTable)
    if (row.kind == kind && row.algorithm == algorithm) return row.plan(shape);
  return Error{.code = Code::kUnsupported,
               .detail = detail::words("there is no ", name(algorithm), " for ", name(kind))};
}

}  // namespace tutti
