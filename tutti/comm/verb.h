#pragma once
// The verbs as data: one row defines a verb. All code that runs, checks or simulates a call reads its row.
// docs/dev/contributing.md lists what else a new verb needs.
#include <cstddef>
#include <cstdint>
#include <iterator>

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
  kScan,
  kExscan,
  kSend,
  kRecv,
};

struct Verb {
  enum class Ranks : std::uint8_t { kNone, kRoot, kAll };
  // A buffer is one vector, or has a part for each rank, by rank. The only buffer of a broadcast is `out`.
  enum class Buffer : std::uint8_t { kNone, kVector, kParts };
  // A reduction adds the inputs of all ranks, of the ranks up to its own, or of the ranks before its own.
  enum class Combine : std::uint8_t { kNothing, kCopy, kReduce, kReduceUpTo, kReduceBefore };
  // The splits that a call passes. kBoth: an all_to_all passes both or none. For a verb with a root only the root
  // passes splits.
  enum class Splits : std::uint8_t { kNone, kIn, kOut, kBoth };

  Kind kind;
  const char* name;
  Ranks gives, gets;  // the ranks that read `in` (a broadcast: `out`); the ranks that write `out`
  Buffer in, out;
  Combine combine;
  Splits splits = Splits::kNone;
};

namespace detail {
using enum Verb::Ranks;
using Buffer = Verb::Buffer;
using Combine = Verb::Combine;
using Splits = Verb::Splits;
// clang-format off
inline constexpr Verb kVerbs[] = {  // in the order of Kind
    {Kind::kBarrier,        "barrier",          kNone, kNone, Buffer::kNone,   Buffer::kNone,   Combine::kNothing},
    {Kind::kBroadcast,      "broadcast",        kRoot, kAll,  Buffer::kNone,   Buffer::kVector, Combine::kCopy},
    {Kind::kReduce,         "reduce",           kAll,  kRoot, Buffer::kVector, Buffer::kVector, Combine::kReduce},
    {Kind::kAllReduce,      "all_reduce",       kAll,  kAll,  Buffer::kVector, Buffer::kVector, Combine::kReduce},
    {Kind::kGather,         "gather",           kAll,  kRoot, Buffer::kVector, Buffer::kParts,  Combine::kCopy},
    {Kind::kAllGather,      "all_gather",       kAll,  kAll,  Buffer::kVector, Buffer::kParts,  Combine::kCopy},
    {Kind::kScatter,        "scatter",          kRoot, kAll,  Buffer::kParts,  Buffer::kVector, Combine::kCopy},
    {Kind::kReduceScatter,  "reduce_scatter",   kAll,  kAll,  Buffer::kParts,  Buffer::kVector, Combine::kReduce},
    {Kind::kAllToAll,       "all_to_all",       kAll,  kAll,  Buffer::kParts,  Buffer::kParts,  Combine::kCopy,   Splits::kBoth},
    {Kind::kGatherV,        "gather_v",         kAll,  kRoot, Buffer::kVector, Buffer::kParts,  Combine::kCopy,   Splits::kOut},
    {Kind::kAllGatherV,     "all_gather_v",     kAll,  kAll,  Buffer::kVector, Buffer::kParts,  Combine::kCopy,   Splits::kOut},
    {Kind::kScatterV,       "scatter_v",        kRoot, kAll,  Buffer::kParts,  Buffer::kVector, Combine::kCopy,   Splits::kIn},
    {Kind::kReduceScatterV, "reduce_scatter_v", kAll,  kAll,  Buffer::kParts,  Buffer::kVector, Combine::kReduce, Splits::kIn},
    {Kind::kScan,           "scan",             kAll,  kAll,  Buffer::kVector, Buffer::kVector, Combine::kReduceUpTo},
    {Kind::kExscan,         "exscan",           kAll,  kAll,  Buffer::kVector, Buffer::kVector, Combine::kReduceBefore},
    {Kind::kSend,           "send",             kAll,  kNone, Buffer::kVector, Buffer::kNone,   Combine::kCopy},
    {Kind::kRecv,           "recv",             kNone, kAll,  Buffer::kNone,   Buffer::kVector, Combine::kCopy},
};
// clang-format on
constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < std::size(kVerbs); ++i)
    if (kVerbs[i].kind != Kind(i)) return false;
  return kVerbs[std::size(kVerbs) - 1].kind == Kind::kRecv;
}
static_assert(rows_are_in_order());
}  // namespace detail

// The last verb that is a collective.
inline constexpr Kind kLastCollective = Kind::kExscan;

constexpr const Verb& verb(Kind kind) { return detail::kVerbs[std::size_t(kind)]; }
constexpr const char* name(Kind kind) { return verb(kind).name; }  // "all_reduce", "send", ...

constexpr bool is_point_to_point(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }
constexpr bool is_reduction(Kind kind) { return verb(kind).combine >= Verb::Combine::kReduce; }
constexpr bool is_scan(Kind kind) { return verb(kind).combine > Verb::Combine::kReduce; }
// How many ranks, from 0 on, a reduction on `rank` adds.
constexpr int summands(Kind kind, int rank, int size) {
  if (verb(kind).combine == Verb::Combine::kReduceUpTo) return rank + 1;
  return verb(kind).combine == Verb::Combine::kReduceBefore ? rank : size;
}
constexpr bool has_root(Kind kind) {
  return verb(kind).gives == Verb::Ranks::kRoot || verb(kind).gets == Verb::Ranks::kRoot;
}
// Whether the parts of the ranks differ in size. (In an all_to_all they differ if it has splits.)
constexpr bool is_uneven(Kind kind) {
  return verb(kind).splits == Verb::Splits::kIn || verb(kind).splits == Verb::Splits::kOut;
}
// Whether all ranks pass the same splits.
constexpr bool has_common_splits(Kind kind) { return is_uneven(kind) && !has_root(kind); }
// Whether a rank's `in` (gives) or `out` (gets) holds a part for every rank.
constexpr bool gives_parts(Kind kind) { return verb(kind).in == Verb::Buffer::kParts; }
constexpr bool gets_parts(Kind kind) { return verb(kind).out == Verb::Buffer::kParts; }

}  // namespace tutti
