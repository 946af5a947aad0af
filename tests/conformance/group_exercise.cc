#include "tests/conformance/group_exercise.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <stdexcept>

#include "tutti/base/float16.h"

namespace tutti::test {
namespace {

constexpr std::byte kUntouched{0xa5};

constexpr std::size_t kPeriod = 5;  // of values along a buffer

// The element of `rank` at `index`: small numbers, so that every sum is exact in every dtype.
std::int64_t value_of(DType dtype, ReduceOp op, int rank, std::size_t index) {
  const std::int64_t v = std::int64_t((std::size_t(rank) * 7 + index * 3) % kPeriod);
  if (dtype == DType::kBool) return v % 2;
  if (op == ReduceOp::kProduct) return 1 + v % 2;
  return v;
}

template <class T, class Convert>
void convert_all(std::span<const double> values, void* into, const Convert& convert) {
  std::transform(values.begin(), values.end(), static_cast<T*>(into), convert);
}

void store(DType dtype, std::span<const double> values, void* into) {
  switch (dtype) {
    case DType::kF32:
      return convert_all<float>(values, into, [](double value) { return float(value); });
    case DType::kF64:
      return convert_all<double>(values, into, [](double value) { return value; });
    case DType::kF16:
      return convert_all<Half>(values, into, [](double value) { return to_half(float(value)); });
    case DType::kBF16:
      return convert_all<BFloat16>(values, into, [](double value) { return to_bfloat16(float(value)); });
    case DType::kI8:
      return convert_all<std::int8_t>(values, into, [](double value) { return std::int8_t(std::int64_t(value)); });
    case DType::kU8:
      return convert_all<std::uint8_t>(values, into, [](double value) { return std::uint8_t(std::int64_t(value)); });
    case DType::kI32:
      return convert_all<std::int32_t>(values, into, [](double value) { return std::int32_t(std::int64_t(value)); });
    case DType::kI64:
      return convert_all<std::int64_t>(values, into, [](double value) { return std::int64_t(value); });
    case DType::kBool:
      return convert_all<std::uint8_t>(values, into, [](double value) { return std::int64_t(value) != 0; });
    case DType::kC64:
      return convert_all<std::complex<float>>(
          values, into, [](double value) { return std::complex<float>(float(value), -float(value)); });
    case DType::kC128:
      return convert_all<std::complex<double>>(values, into,
                                               [](double value) { return std::complex<double>(value, -value); });
  }
}

// Appends the elements value(0) to value(count - 1). Few of them are computed, since sanitizers make that slow, and
// tests check thousands of calls.
template <class Value>
void append(std::vector<std::byte>& bytes, DType dtype, std::size_t count, const Value& value) {
  if (count == 0) return;
  std::array<double, kPeriod> period;
  for (std::size_t i = 0; i < kPeriod; ++i) period[i] = value(i);
  alignas(16) std::array<std::byte, kPeriod * size_of(DType::kC128)> stored;
  store(dtype, period, stored.data());
  const std::size_t begin = bytes.size(), size = count * size_of(dtype);
  bytes.resize(begin + size);
  std::size_t done = std::min(size, kPeriod * size_of(dtype));
  std::memcpy(bytes.data() + begin, stored.data(), done);
  for (std::size_t more = 0; done < size; done += more)
    std::memcpy(bytes.data() + begin + done, bytes.data() + begin, more = std::min(done, size - done));
}

// Empty. Its memory is kept for the thread's next call, since fresh memory is slow under a sanitizer.
std::vector<std::byte>& scratch() {
  thread_local std::vector<std::byte> bytes;
  bytes.clear();
  return bytes;
}

// Of a premultiplied sum: exact in every dtype, and another for each rank.
double factor_of(int rank) { return 0.5 * (rank + 1); }

double expected_reduction(DType dtype, ReduceOp op, int ranks, std::size_t index) {
  if (op == ReduceOp::kPremulSum) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += double(value_of(dtype, op, r, index)) * factor_of(r);
    return sum;
  }
  std::int64_t all = value_of(dtype, op, 0, index);
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t v = value_of(dtype, op, r, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        all += v;
        break;
      case ReduceOp::kProduct:
        all *= v;
        break;
      case ReduceOp::kMin:
        all = std::min(all, v);
        break;
      case ReduceOp::kMax:
        all = std::max(all, v);
        break;
      case ReduceOp::kBand:
        all &= v;
        break;
      case ReduceOp::kBor:
        all |= v;
        break;
      case ReduceOp::kBxor:
        all ^= v;
        break;
      case ReduceOp::kPremulSum:
        break;
    }
  }
  if (op != ReduceOp::kAvg) return double(all);
  if (!is_floating(dtype) && !is_complex(dtype)) return double(all / ranks);
  return dtype == DType::kF64 || dtype == DType::kC128 ? double(all) / ranks : double(float(all) / float(ranks));
}

}  // namespace

std::vector<ReduceOp> ops_of(DType dtype) {
  if (is_complex(dtype)) return {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum};
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
  if (size_of(dtype) > 1) ops.push_back(ReduceOp::kAvg);
  if (is_floating(dtype))
    ops.push_back(ReduceOp::kPremulSum);
  else
    for (ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) ops.push_back(op);
  return ops;
}

Buffer::Buffer(const Group& world, bool heap, DType dtype, std::size_t count) {
  const std::size_t bytes = count * size_of(dtype);
  if (heap)
    shared_ = world.allocate(bytes + 1).or_throw();
  else
    own_.resize(bytes + 1);
  std::memset(data(), int(kUntouched), bytes);
}

Exercise::Exercise(const Group& world, Kind kind, const Case& what)
    : world_(world),
      case_(what),
      request_{.kind = kind, .dtype = what.dtype, .op = what.op, .root = what.root, .factor = factor_of(world.rank())} {
  is_uneven(kind) ? make_uneven_parts() : make_parts();
}

// Shapes of the verbs, as comm/request.h says them.
void Exercise::make_parts() {
  const std::size_t n = std::size_t(world_.size()), me = std::size_t(world_.rank());
  const std::size_t count = case_.count, element = size_of(case_.dtype);
  const Kind kind = request_.kind;
  const bool in_parts = gives_parts(kind);
  const bool out_parts = kind == Kind::kGather || kind == Kind::kAllGather || kind == Kind::kAllToAll;
  const std::size_t ins = count * (in_parts ? n : 1), outs = count * (out_parts ? n : 1);
  memory_.emplace_back(world_, case_.heap, case_.dtype, std::max(ins, outs));
  memory_.emplace_back(world_, case_.heap, case_.dtype, outs);
  std::byte* in = memory_[0].data();
  std::byte* out = case_.in_place ? in : memory_[1].data();
  if (case_.in_place && out_parts && !in_parts) in = out + me * count * element;  // own part of the large buffer
  if (case_.in_place && in_parts && !out_parts) out = in + me * count * element;
  const bool gives = kind == Kind::kBroadcast || kind == Kind::kScatter ? world_.rank() == case_.root : true;
  if (gives) fill(in, ins, 0);
  request_.in = in;
  request_.out = out;
  request_.count = count;
}

// Elements are numbered through from rank to rank, so that a part that lands in a wrong place shows.
void Exercise::make_uneven_parts() {
  const int me = world_.rank();
  std::size_t total = 0;
  for (int r = 0; r < world_.size(); ++r) {
    begins_.push_back(total);
    splits_.push_back(r % 3 == 1 || case_.count == 0 ? 0 : case_.count + std::size_t(r));
    total += splits_.back();
  }
  const std::size_t mine = splits_[std::size_t(me)], before = begins_[std::size_t(me)];
  const bool parts_in = gives_parts(request_.kind), root = me == case_.root || !has_root(request_.kind);
  memory_.emplace_back(world_, case_.heap, case_.dtype, total);
  memory_.emplace_back(world_, case_.heap, case_.dtype, mine);
  std::byte* const large = root ? memory_[0].data() : nullptr;
  std::byte* const small = case_.in_place && root ? large + before * size_of(case_.dtype)
                           : mine > 0             ? memory_[1].data()
                                                  : nullptr;
  if (parts_in && root) fill(large, total, 0);
  if (!parts_in) fill(small, mine, before);
  request_.in = parts_in ? large : small;
  request_.out = parts_in ? small : large;
  if (has_root(request_.kind)) request_.count = mine;
  if (root) (parts_in ? request_.in_splits : request_.out_splits) = splits_;
}

double Exercise::value(int rank, std::size_t index) const {
  return double(value_of(case_.dtype, case_.op, rank, index));
}
double Exercise::reduced(std::size_t index) const { return reduced(index, world_.size()); }
double Exercise::reduced(std::size_t index, int ranks) const {
  return expected_reduction(case_.dtype, case_.op, ranks, index);
}

std::string Exercise::words() const {
  return detail::words(name(request_.kind), " ", name(case_.dtype), "[", std::to_string(case_.count), "] ",
                       name(case_.op), case_.heap ? " heap" : " private", case_.in_place ? " in place" : "", " root ",
                       case_.root, " of ", world_.size(), " on rank ", world_.rank());
}

void Exercise::fill(std::byte* into, std::size_t count, std::size_t first) const {
  std::vector<std::byte>& bytes = scratch();
  append(bytes, case_.dtype, count, [&](std::size_t i) { return value(world_.rank(), first + i); });
  if (count > 0) std::memcpy(into, bytes.data(), bytes.size());
}

// What the output must be. False: this rank gets none.
bool Exercise::expected(std::vector<std::byte>& bytes) const {
  const std::size_t count = case_.count, me = std::size_t(world_.rank());
  const auto add = [&](std::size_t elements, const auto& value) { append(bytes, case_.dtype, elements, value); };
  switch (request_.kind) {
    case Kind::kReduce:
    case Kind::kAllReduce:
      add(count, [&](std::size_t i) { return reduced(i); });
      break;
    case Kind::kScan:
      add(count, [&](std::size_t i) { return reduced(i, int(me) + 1); });
      break;
    case Kind::kExscan:
      if (me > 0)
        add(count, [&](std::size_t i) { return reduced(i, int(me)); });
      else if (case_.in_place)
        add(count, [&](std::size_t i) { return value(int(me), i); });
      else
        bytes.resize(count * size_of(case_.dtype), kUntouched);
      break;
    case Kind::kReduceScatter:
      add(count, [&](std::size_t i) { return reduced(me * count + i); });
      break;
    case Kind::kBroadcast:
      add(count, [&](std::size_t i) { return value(case_.root, i); });
      break;
    case Kind::kGather:
    case Kind::kAllGather:
      for (int r = 0; r < world_.size(); ++r) add(count, [&](std::size_t i) { return value(r, i); });
      break;
    case Kind::kScatter:
      add(count, [&](std::size_t i) { return value(case_.root, me * count + i); });
      break;
    case Kind::kAllToAll:
      for (int r = 0; r < world_.size(); ++r) add(count, [&](std::size_t i) { return value(r, me * count + i); });
      break;
    case Kind::kGatherV:
    case Kind::kAllGatherV:
      for (std::size_t r = 0; r < splits_.size(); ++r)
        add(splits_[r], [&](std::size_t i) { return value(int(r), begins_[r] + i); });
      break;
    case Kind::kScatterV:
      add(splits_[me], [&](std::size_t i) { return value(case_.root, begins_[me] + i); });
      break;
    case Kind::kReduceScatterV:
      add(splits_[me], [&](std::size_t i) { return reduced(begins_[me] + i); });
      break;
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      return false;
  }
  const bool only_root =
      request_.kind == Kind::kReduce || request_.kind == Kind::kGather || request_.kind == Kind::kGatherV;
  return !only_root || world_.rank() == case_.root;
}

void Exercise::check() const {
  std::vector<std::byte>& wanted = scratch();
  if (!expected(wanted) || wanted.empty()) return;
  const auto* const got = static_cast<const std::byte*>(request_.out);
  if (std::memcmp(got, wanted.data(), wanted.size()) == 0) return;
  const std::size_t at = std::size_t(std::mismatch(wanted.begin(), wanted.end(), got).first - wanted.begin());
  throw std::runtime_error(words() + ": wrong at element " + std::to_string(at / size_of(case_.dtype)));
}

}  // namespace tutti::test
