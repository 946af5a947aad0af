// `bytes` is the whole vector on a rank. all_reduce and broadcast work in place in `a`; the others go from `a` to `b`,
// and what splits the vector (gather, all_gather, scatter, reduce_scatter, all_to_all) moves parts of bytes / ranks;
// the parts of the _v verbs grow from rank to rank.
//
// The check computes what must come out with arithmetic of its own, in double, from a pattern that repeats every
// kPeriod elements: a prime, so that a piece of any power-of-two size that lands in a wrong place shows.
#include "bench/collectives/operation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>

#include "tutti/comm/collectives.h"
#include "tutti/comm/parts.h"

namespace tutti::bench {
namespace {

constexpr std::size_t kPeriod = 251;

double whole(double) { return 1; }
double all_but_own(double n) { return (n - 1) / n; }
double twice_all_but_own(double n) { return 2 * (n - 1) / n; }

constexpr Operation kOperations[] = {
    {"all_reduce", Kind::kAllReduce, false, true, twice_all_but_own},
    {"reduce", Kind::kReduce, false, true, whole},
    {"broadcast", Kind::kBroadcast, false, false, whole},
    {"all_gather", Kind::kAllGather, true, false, all_but_own},
    {"gather", Kind::kGather, true, false, all_but_own},
    {"scatter", Kind::kScatter, true, false, all_but_own},
    {"reduce_scatter", Kind::kReduceScatter, true, true, all_but_own},
    {"all_to_all", Kind::kAllToAll, true, false, all_but_own},
    {"gather_v", Kind::kGatherV, true, false, all_but_own},
    {"all_gather_v", Kind::kAllGatherV, true, false, all_but_own},
    {"scatter_v", Kind::kScatterV, true, false, all_but_own},
    {"reduce_scatter_v", Kind::kReduceScatterV, true, true, all_but_own},
    {"barrier", Kind::kBarrier, false, false, whole},
    {"send_recv", Kind::kSend, false, false, whole},
};

// What rank `rank` brings at place `element`. Products stay small: only one rank brings a 2.
double pattern(DType dtype, ReduceOp op, int rank, int ranks, std::size_t element) {
  const std::size_t place = element % kPeriod;
  if (dtype == DType::kBool) return double((place + std::size_t(rank)) % 3 == 0);
  if (op == ReduceOp::kProduct) return place % std::size_t(ranks) == std::size_t(rank) ? 2 : 1;
  return double((place * 3 + std::size_t(rank) * 5) % 7);
}

double fold(DType dtype, ReduceOp op, double x, double y) {
  if (dtype == DType::kBool && op == ReduceOp::kSum) op = ReduceOp::kBor;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      return x + y;
    case ReduceOp::kProduct:
      return x * y;
    case ReduceOp::kMin:
      return std::min(x, y);
    case ReduceOp::kMax:
      return std::max(x, y);
    case ReduceOp::kBand:
      return double(std::int64_t(x) & std::int64_t(y));
    case ReduceOp::kBor:
      return double(std::int64_t(x) | std::int64_t(y));
    case ReduceOp::kBxor:
      return double(std::int64_t(x) ^ std::int64_t(y));
  }
  return 0;
}

// Calls `use` with a T* for the dtype.
template <class Use>
void as_elements(DType dtype, std::byte* data, const Use& use) {
  switch (dtype) {
    case DType::kF32:
      return use(reinterpret_cast<float*>(data));
    case DType::kF64:
      return use(reinterpret_cast<double*>(data));
    case DType::kF16:
      return use(reinterpret_cast<Half*>(data));
    case DType::kBF16:
      return use(reinterpret_cast<BFloat16*>(data));
    case DType::kI8:
      return use(reinterpret_cast<std::int8_t*>(data));
    case DType::kU8:
      return use(reinterpret_cast<std::uint8_t*>(data));
    case DType::kI32:
      return use(reinterpret_cast<std::int32_t*>(data));
    case DType::kI64:
      return use(reinterpret_cast<std::int64_t*>(data));
    case DType::kBool:
      return use(reinterpret_cast<bool*>(data));
    case DType::kC64:
      return use(reinterpret_cast<std::complex<float>*>(data));
    case DType::kC128:
      return use(reinterpret_cast<std::complex<double>*>(data));
  }
}

template <class T>
T to_element(double value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (is_complex(dtype_of<T>()))
    return T(typename T::value_type(value), 0);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::int64_t(value));  // wraps, as the sums do
  else if constexpr (std::is_same_v<T, Half>)
    return to_half(float(value));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(float(value));
  else
    return T(value);
}

template <class T>
double to_number(T element) {
  if constexpr (sizeof(T) == 2)
    return to_float(element);
  else if constexpr (is_complex(dtype_of<T>()))
    return element.imag() == 0 ? double(element.real()) : std::nan("");
  else
    return double(element);
}

// The result is one part from each rank.
bool result_has_parts(Kind kind) {
  return kind == Kind::kGather || kind == Kind::kAllGather || kind == Kind::kAllToAll || kind == Kind::kGatherV ||
         kind == Kind::kAllGatherV;
}

// Of a premultiplied sum.
double factor(int rank) { return 0.5 * (rank % 4 + 1); }

// An average of 16-bit numbers may be rounded twice.
double tolerance(DType dtype, ReduceOp op) {
  if (op != ReduceOp::kAvg && op != ReduceOp::kPremulSum) return 0;
  return size_of(dtype) == 2 ? 1e-2 : dtype == DType::kF32 || dtype == DType::kC64 ? 1e-6 : 1e-15;
}

}  // namespace

std::span<const Operation> operations() { return kOperations; }

Exercise::Exercise(const Group& world, const Operation& operation, DType dtype, ReduceOp op, std::size_t bytes,
                   std::byte* a, std::byte* b)
    : world_(world), operation_(operation), count_(bytes / size_of(dtype)), a_(a), b_(b) {
  const std::size_t ranks = std::size_t(world.size());
  if (operation.splits) count_ -= count_ % ranks;
  request_ = {.kind = operation.kind,
              .dtype = dtype,
              .op = op,
              .in = a,
              .out = b,
              .count = operation.splits ? count_ / ranks : count_};
  if (operation.kind == Kind::kAllReduce || operation.kind == Kind::kBroadcast) request_.out = a;
  for (std::size_t r = 0; r < ranks && is_uneven(operation.kind); ++r) {
    const auto begin = [&](std::size_t rank) { return count_ * rank * (rank + 1) / (ranks * (ranks + 1)); };
    splits_.push_back(begin(r + 1) - begin(r));
  }
  if (is_uneven(operation.kind)) {
    request_.count = has_root(operation.kind) ? splits_[std::size_t(world.rank())] : 0;
    if (!has_root(operation.kind) || world.rank() == request_.root)
      (gives_parts(operation.kind) ? request_.in_splits : request_.out_splits) = splits_;
  }
  if (op == ReduceOp::kPremulSum) request_.factor = factor(world.rank());
  if (operation.kind == Kind::kBarrier) request_ = {.kind = Kind::kBarrier}, count_ = 0;
}

std::size_t Exercise::bytes() const { return count_ * size_of(request_.dtype); }

void Exercise::write_pattern() {
  write_zeros();
  std::array<double, kPeriod> table;
  for (std::size_t i = 0; i < kPeriod; ++i)
    table[i] = pattern(request_.dtype, request_.op, world_.rank(), world_.size(), i);
  as_elements(request_.dtype, a_, [&](auto* elements) {
    using T = std::remove_pointer_t<decltype(elements)>;
    for (std::size_t i = 0; i < count_; ++i) elements[i] = to_element<T>(table[i % kPeriod]);
  });
}

void Exercise::write_zeros() {
  std::memset(a_, 0, bytes());
  std::memset(b_, 0, bytes());
}

void Exercise::call() const {
  if (operation_.kind != Kind::kSend) return world_.run(request_).or_throw();
  if (world_.size() == 1) return;
  const int ranks = world_.size(), rank = world_.rank();
  Request receive = request_, send = request_;
  receive.kind = Kind::kRecv, receive.in = nullptr, receive.root = (rank + ranks - 1) % ranks;
  send.out = nullptr, send.root = (rank + 1) % ranks;
  const Work received = world_.submit(receive), sent = world_.submit(send);
  sent.get();
  received.get();
}

Work Exercise::start() const {
  if (operation_.kind != Kind::kSend) return world_.submit(request_);
  call();
  return {};
}

double Exercise::reduced(std::size_t element) const {
  if (request_.op == ReduceOp::kPremulSum) {
    double sum = 0;
    for (int rank = 0; rank < world_.size(); ++rank)
      sum += factor(rank) * pattern(request_.dtype, request_.op, rank, world_.size(), element);
    return sum;
  }
  double value = pattern(request_.dtype, request_.op, 0, world_.size(), element);
  for (int rank = 1; rank < world_.size(); ++rank)
    value =
        fold(request_.dtype, request_.op, value, pattern(request_.dtype, request_.op, rank, world_.size(), element));
  if (request_.op != ReduceOp::kAvg) return value;
  value /= world_.size();
  return is_floating(request_.dtype) || is_complex(request_.dtype) ? value : std::trunc(value);
}

// What must stand at `element` of part `part` of the result (the result of an operation that does not split is one
// part).
double Exercise::expected(std::size_t element, std::size_t part) const {
  const std::size_t mine = Parts(request_.count, splits_).begin(world_.rank()) + element;
  const auto from = [&](int rank, std::size_t place) {
    return pattern(request_.dtype, request_.op, rank, world_.size(), place);
  };
  switch (operation_.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return reduced(element);
    case Kind::kReduceScatter:
    case Kind::kReduceScatterV:
      return reduced(mine);
    case Kind::kBroadcast:
      return from(0, element);
    case Kind::kGather:
    case Kind::kAllGather:
    case Kind::kGatherV:
    case Kind::kAllGatherV:
      return from(int(part), element);
    case Kind::kScatter:
    case Kind::kScatterV:
      return from(0, mine);
    case Kind::kAllToAll:
      return from(int(part), mine);
    case Kind::kSend:
    case Kind::kRecv:
      return from((world_.rank() + world_.size() - 1) % world_.size(), element);
    case Kind::kBarrier:
      break;
  }
  return 0;
}

const std::byte* Exercise::result() const { return static_cast<const std::byte*>(request_.out); }

std::size_t Exercise::result_count() const {
  switch (operation_.kind) {
    case Kind::kBarrier:
      return 0;
    case Kind::kReduce:
    case Kind::kGather:
    case Kind::kGatherV:
      return world_.rank() == request_.root ? count_ : 0;
    case Kind::kScatter:
    case Kind::kReduceScatter:
      return request_.count;
    case Kind::kScatterV:
    case Kind::kReduceScatterV:
      return splits_[std::size_t(world_.rank())];
    case Kind::kSend:
    case Kind::kRecv:
      return world_.size() > 1 ? count_ : 0;
    case Kind::kAllReduce:
    case Kind::kBroadcast:
    case Kind::kAllGather:
    case Kind::kAllGatherV:
    case Kind::kAllToAll:
      return count_;
  }
  return 0;
}

std::size_t Exercise::count_wrong() const {
  std::size_t wrong = 0;
  const double allowed = tolerance(request_.dtype, request_.op);
  as_elements(request_.dtype, const_cast<std::byte*>(result()), [&](const auto* elements) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(elements)>>;
    const std::size_t count = result_count();
    std::array<double, kPeriod> table;
    const Parts parts(request_.count, result_has_parts(request_.kind) ? splits_ : std::span<const std::size_t>());
    const auto size_of_part = [&](std::size_t part) {
      return result_has_parts(request_.kind) ? parts.count(int(part)) : count;
    };
    for (std::size_t begin = 0, part = 0; begin < count; begin += size_of_part(part), ++part) {
      for (std::size_t i = 0; i < kPeriod; ++i) table[i] = to_number(to_element<T>(expected(i, part)));
      for (std::size_t i = 0; i < size_of_part(part); ++i) {
        const double want = table[i % kPeriod], got = to_number(elements[begin + i]);
        wrong += !(std::abs(got - want) <= allowed * std::abs(want));
      }
    }
  });
  return wrong;
}

}  // namespace tutti::bench
