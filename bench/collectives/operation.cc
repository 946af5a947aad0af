// `bytes` is the whole vector on a rank. What splits the vector (gather, all_gather, scatter, reduce_scatter,
// all_to_all) moves parts of bytes / ranks; the parts of the _v verbs grow from rank to rank.
#include "bench/collectives/operation.h"

#include <cstdint>
#include <cstring>

#include "bench/collectives/exercises.h"

namespace tutti::bench {
namespace {

double whole(double) { return 1; }
double half(double) { return 0.5; }
double all_but_own(double n) { return (n - 1) / n; }
double twice_all_but_own(double n) { return 2 * (n - 1) / n; }

double nothing(double) { return 0; }
double two(double) { return 2; }
double one_from_each(double n) { return n; }
double one_from_each_and_one(double n) { return n + 1; }
double two_of_each(double n) { return 2 * n; }
double two_of_each_pair(double n) { return n - std::int64_t(n) % 2; }  // per leg: half of them send, half receive

constexpr Operation kOperations[] = {
    {"all_reduce", Form::kCollective, Kind::kAllReduce, false, twice_all_but_own, two_of_each},
    {"reduce", Form::kCollective, Kind::kReduce, false, whole, one_from_each_and_one},
    {"scan", Form::kCollective, Kind::kScan, false, whole, two_of_each},
    {"exscan", Form::kCollective, Kind::kExscan, false, whole, two_of_each},
    {"broadcast", Form::kCollective, Kind::kBroadcast, false, whole, one_from_each},
    {"all_gather", Form::kCollective, Kind::kAllGather, true, all_but_own, one_from_each_and_one},
    {"gather", Form::kCollective, Kind::kGather, true, all_but_own, two},
    {"scatter", Form::kCollective, Kind::kScatter, true, all_but_own, two},
    {"reduce_scatter", Form::kCollective, Kind::kReduceScatter, true, all_but_own, one_from_each_and_one},
    {"all_to_all", Form::kCollective, Kind::kAllToAll, true, all_but_own, two_of_each},
    {"all_gather_v", Form::kCollective, Kind::kAllGatherV, true, all_but_own, one_from_each_and_one},
    {"gather_v", Form::kCollective, Kind::kGatherV, true, all_but_own, two},
    {"scatter_v", Form::kCollective, Kind::kScatterV, true, all_but_own, two},
    {"reduce_scatter_v", Form::kCollective, Kind::kReduceScatterV, true, all_but_own, one_from_each_and_one},
    {"all_to_all_v", Form::kUneven, Kind::kAllToAll, true, all_but_own, two_of_each},
    {"all_reduce_coalesced", Form::kCoalesced, Kind::kAllReduce, false, twice_all_but_own, two_of_each},
    {"send_recv", Form::kRing, Kind::kSend, false, whole, two_of_each},
    {"ping_pong", Form::kPingPong, Kind::kSend, false, whole, two_of_each_pair},
    {"batch_isend_irecv", Form::kBatch, Kind::kSend, false, half, two_of_each},
    {"broadcast_bytes", Form::kBytes, Kind::kBroadcast, false, whole, one_from_each},
    {"all_gather_bytes", Form::kBytes, Kind::kAllGather, true, all_but_own, one_from_each_and_one},
    {"broadcast_json", Form::kJson, Kind::kBroadcast, false, whole, one_from_each},
    {"all_gather_json", Form::kJson, Kind::kAllGather, true, all_but_own, one_from_each_and_one},
    {"barrier", Form::kCollective, Kind::kBarrier, false, whole, nothing},
    {"monitored_barrier", Form::kMonitored, Kind::kBarrier, false, whole, nothing},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

Exercise::Exercise(const Group& group, const Operation& operation, Size size, Buffers buffers)
    : group_(group),
      operation_(operation),
      size_(size),
      count_(size.bytes / size_of(size.dtype)),
      buffers_(buffers),
      a_(buffers.a),
      b_(buffers.b) {
  if (operation.splits) count_ -= count_ % std::size_t(group.size());
  if (!operation.has_bytes()) count_ = 0;
}

void Exercise::write_zeros() {
  std::memset(a_, 0, bytes());
  std::memset(b_, 0, bytes());
}

void Exercise::rewrite() {
  std::uint64_t all_ones = ~std::uint64_t(0);
  __asm__ volatile("" : "+r"(all_ones));  // the compiler must not know that nothing changes
  std::byte* const end = a_ + bytes();
  std::byte* at = a_;
  for (; end - at >= 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    word &= all_ones;
    std::memcpy(at, &word, 8);
  }
  for (; at < end; ++at) *at &= std::byte(all_ones);
  __asm__ volatile("" : : "r"(a_) : "memory");
}

namespace {

std::unique_ptr<Exercise> make_inner(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  switch (operation.form) {
    case Form::kCollective:
    case Form::kUneven:
    case Form::kCoalesced:
      return make_collective(group, operation, size, buffers);
    case Form::kRing:
    case Form::kPingPong:
    case Form::kBatch:
      return make_messages(group, operation, size, buffers);
    case Form::kBytes:
    case Form::kJson:
      return make_objects(group, operation, size, buffers);
    case Form::kMonitored:
      break;
  }
  return make_monitored(group, operation, size, buffers);
}

}  // namespace

std::unique_ptr<Exercise> make_exercise(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  auto inner = make_inner(group, operation, size, buffers);
  // Objects are values of the host, and a barrier has no bytes.
  const bool has_buffers = operation.has_bytes() && operation.form != Form::kBytes && operation.form != Form::kJson;
  return buffers.device && has_buffers ? make_on_device(std::move(inner), buffers) : std::move(inner);
}

}  // namespace tutti::bench
