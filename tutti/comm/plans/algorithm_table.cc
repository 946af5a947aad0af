#include "tutti/comm/plans/algorithms.h"

namespace tutti::comm {

std::span<const AlgorithmRow> algorithm_table() {
  static constexpr AlgorithmRow kTable[] = {
      {Kind::kAllReduce, Algorithm::kRecursiveDoubling, all_reduce_recursive_doubling},
      {Kind::kAllReduce, Algorithm::kRing, all_reduce_ring},
      {Kind::kAllReduce, Algorithm::kHalvingDoubling, all_reduce_halving_doubling},
      {Kind::kAllReduce, Algorithm::kTwoLevel, all_reduce_two_level, false, true},
      {Kind::kAllReduce, Algorithm::kMesh, all_reduce_mesh},
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
      {Kind::kScan, Algorithm::kRecursiveDoubling, scan_recursive_doubling, false, false, true},
      {Kind::kScan, Algorithm::kChain, scan_chain},
      {Kind::kExscan, Algorithm::kRecursiveDoubling, exscan_recursive_doubling, false, false, true},
      {Kind::kExscan, Algorithm::kChain, exscan_chain},
      {Kind::kBarrier, Algorithm::kDissemination, barrier_dissemination},
  };
  return kTable;
}

}  // namespace tutti::comm
