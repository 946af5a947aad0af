#include "tutti/comm/select.h"

#include <algorithm>
#include <iterator>

#include "tutti/planning/collectives/algorithms.h"

namespace tutti {
namespace {

struct Row {
  Kind kind;
  std::size_t below;  // bytes of the whole vector on a rank
  Algorithm algorithm;
  Plan (*plan)(const Shape&);
  bool uneven = false;  // understands splits
  int hosts = 0;        // at least so many hosts, at least one of them with several ranks
};

constexpr std::size_t kAny = ~std::size_t(0);

// First row that fits; rows of 0 bytes are those that only TUTTI_ALGORITHM takes. The borders: recursive doubling sends
// the vector log2(n) times but waits only log2(n) times. A ring over n ranks waits 2(n-1) times, two levels over h
// hosts 2 + 2 log2(h) times, for the same bytes on each host's card.
constexpr Row kTable[] = {
    {Kind::kAllReduce, 16 << 10, Algorithm::kRecursiveDoubling, all_reduce_recursive_doubling},
    {Kind::kAllReduce, kAny, Algorithm::kTwoLevel, all_reduce_two_level, false, 4},
    {Kind::kAllReduce, kAny, Algorithm::kRing, all_reduce_ring},
    {Kind::kAllReduce, 0, Algorithm::kHalvingDoubling, all_reduce_halving_doubling},
    {Kind::kAllReduce, 0, Algorithm::kBruck, all_reduce_bruck},
    {Kind::kAllReduce, 0, Algorithm::kMesh, all_reduce_mesh},
    {Kind::kBroadcast, 256 << 10, Algorithm::kBinomial, broadcast_binomial},
    {Kind::kBroadcast, kAny, Algorithm::kChain, broadcast_chain},
    {Kind::kBroadcast, 0, Algorithm::kVanDeGeijn, broadcast_van_de_geijn},
    {Kind::kBroadcast, 0, Algorithm::kTwoLevel, broadcast_two_level},
    {Kind::kReduce, kAny, Algorithm::kBinomial, reduce_binomial},
    {Kind::kReduce, 0, Algorithm::kChain, reduce_chain},
    {Kind::kReduce, 0, Algorithm::kVanDeGeijn, reduce_van_de_geijn},
    {Kind::kAllGather, kAny, Algorithm::kRing, all_gather_ring},
    {Kind::kAllGather, 0, Algorithm::kBruck, all_gather_bruck},
    {Kind::kAllGather, 0, Algorithm::kMesh, all_gather_mesh},
    {Kind::kAllGather, 0, Algorithm::kTwoLevel, all_gather_two_level},
    {Kind::kReduceScatter, kAny, Algorithm::kRing, reduce_scatter_ring},
    {Kind::kReduceScatter, 0, Algorithm::kBruck, reduce_scatter_bruck},
    {Kind::kReduceScatter, 0, Algorithm::kMesh, reduce_scatter_mesh},
    {Kind::kGather, kAny, Algorithm::kDirect, gather_direct},
    {Kind::kScatter, kAny, Algorithm::kDirect, scatter_direct},
    {Kind::kAllGatherV, kAny, Algorithm::kRing, all_gather_ring, true},
    {Kind::kAllGatherV, 0, Algorithm::kBruck, all_gather_bruck, true},
    {Kind::kAllGatherV, 0, Algorithm::kMesh, all_gather_mesh, true},
    {Kind::kAllGatherV, 0, Algorithm::kTwoLevel, all_gather_two_level, true},
    {Kind::kReduceScatterV, kAny, Algorithm::kRing, reduce_scatter_ring, true},
    {Kind::kReduceScatterV, 0, Algorithm::kBruck, reduce_scatter_bruck, true},
    {Kind::kReduceScatterV, 0, Algorithm::kMesh, reduce_scatter_mesh, true},
    {Kind::kGatherV, kAny, Algorithm::kDirect, gather_direct, true},
    {Kind::kScatterV, kAny, Algorithm::kDirect, scatter_direct, true},
    {Kind::kAllToAll, kAny, Algorithm::kPairwise, all_to_all_pairwise, true},
    {Kind::kAllToAll, 0, Algorithm::kBruck, all_to_all_bruck},
    {Kind::kBarrier, kAny, Algorithm::kDissemination, barrier_dissemination},
};

}  // namespace

Algorithm select_algorithm(const Request& request, const Hosts& hosts, const std::string& forced) {
  const std::size_t parts =
      request.kind == Kind::kAllGather || request.kind == Kind::kReduceScatter || request.kind == Kind::kAllToAll
          ? std::size_t(hosts.ranks())
          : 1;
  const std::size_t bytes = request.count * size_of(request.dtype) * parts;
  const bool uneven = !request.in_splits.empty() || !request.out_splits.empty();
  const auto fits = [&](const Row& row) { return row.kind == request.kind && (row.uneven || !uneven); };
  if (!forced.empty())
    for (const Row& row : kTable)
      if (fits(row) && forced == name(row.algorithm)) return row.algorithm;
  const auto pays = [&](const Row& row) { return row.hosts == 0 || (hosts.count() >= row.hosts && hosts.most() > 1); };
  const Row* const row = std::find_if(std::begin(kTable), std::end(kTable),
                                      [&](const Row& r) { return fits(r) && bytes < r.below && pays(r); });
  return row->algorithm;
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
