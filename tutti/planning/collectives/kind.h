#pragma once
// The verbs.
#include <cstdint>

namespace tutti {

enum class Kind : std::uint8_t {
  kBarrier,
  kBroadcast,
  kReduce,
  kAllReduce,
  kGather,
  kAllGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kGatherV,
  kAllGatherV,
  kScatterV,
  kReduceScatterV,
  kSend,
  kRecv,
};

// "all_reduce", "send", ...
const char* name(Kind kind);

constexpr bool is_point_to_point(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }
constexpr bool is_reduction(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kAllReduce || kind == Kind::kReduceScatter ||
         kind == Kind::kReduceScatterV;
}
constexpr bool has_root(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kGatherV || kind == Kind::kScatterV;
}
// The parts of the ranks differ in size. (Those of an all_to_all differ if it is given splits.)
constexpr bool is_uneven(Kind kind) {
  return kind == Kind::kGatherV || kind == Kind::kAllGatherV || kind == Kind::kScatterV ||
         kind == Kind::kReduceScatterV;
}
// A rank's own buffer holds a part for every rank.
constexpr bool gives_parts(Kind kind) {
  return kind == Kind::kScatter || kind == Kind::kReduceScatter || kind == Kind::kAllToAll || kind == Kind::kScatterV ||
         kind == Kind::kReduceScatterV;
}

}  // namespace tutti
