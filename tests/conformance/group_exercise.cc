#include "tests/conformance/group_exercise.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "tutti/base/float16.h"

namespace tutti::test {
namespace {

// The element of `rank` at `index`: small numbers, so that every sum is exact in every dtype.
std::int64_t value_of(DType dtype, ReduceOp op, int rank, std::size_t index) {
  const std::int64_t v = std::int64_t((std::size_t(rank) * 7 + index * 3) % 5);
  if (dtype == DType::kBool) return v % 2;
  if (op == ReduceOp::kProduct) return 1 + v % 2;
  return v;
}

void store(DType dtype, void* at, std::size_t index, double value) {
  const auto integer = std::int64_t(value);
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(at)[index] = float(value);
      break;
    case DType::kF64:
      static_cast<double*>(at)[index] = value;
      break;
    case DType::kF16:
      static_cast<Half*>(at)[index] = to_half(float(value));
      break;
    case DType::kBF16:
      static_cast<BFloat16*>(at)[index] = to_bfloat16(float(value));
      break;
    case DType::kI8:
      static_cast<std::int8_t*>(at)[index] = std::int8_t(integer);
      break;
    case DType::kU8:
      static_cast<std::uint8_t*>(at)[index] = std::uint8_t(integer);
      break;
    case DType::kI32:
      static_cast<std::int32_t*>(at)[index] = std::int32_t(integer);
      break;
    case DType::kI64:
      static_cast<std::int64_t*>(at)[index] = integer;
      break;
    case DType::kBool:
      static_cast<std::uint8_t*>(at)[index] = integer != 0;
      break;
    case DType::kC64:
      static_cast<std::complex<float>*>(at)[index] = {float(value), -float(value)};
      break;
    case DType::kC128:
      static_cast<std::complex<double>*>(at)[index] = {value, -value};
      break;
  }
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
  std::memset(data(), 0xa5, bytes);
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
  for (std::size_t i = 0; gives && i < ins; ++i) store(case_.dtype, in, i, value(world_.rank(), i));
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
  for (std::size_t i = 0; parts_in && root && i < total; ++i) store(case_.dtype, large, i, value(me, i));
  for (std::size_t i = 0; !parts_in && i < mine; ++i) store(case_.dtype, small, i, value(me, before + i));
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

void Exercise::expect(std::size_t count, const std::function<double(std::size_t)>& expectation) const {
  const auto* const got = static_cast<const std::byte*>(request_.out);
  const std::size_t element = size_of(case_.dtype);
  std::vector<std::byte> wanted(count * element + 1);
  for (std::size_t i = 0; i < count; ++i) store(case_.dtype, wanted.data(), i, expectation(i));
  for (std::size_t i = 0; i < count * element; ++i)
    if (got[i] != wanted[i]) throw std::runtime_error(words() + ": wrong at element " + std::to_string(i / element));
}

void Exercise::expect_untouched() const {
  if (case_.in_place) return expect(case_.count, [&](std::size_t i) { return value(world_.rank(), i); });
  const auto* const got = static_cast<const std::byte*>(request_.out);
  for (std::size_t i = 0; i < case_.count * size_of(case_.dtype); ++i)
    if (got[i] != std::byte(0xa5)) throw std::runtime_error(words() + ": the output is written");
}

void Exercise::check() const {
  const std::size_t count = case_.count, me = std::size_t(world_.rank()), n = std::size_t(world_.size());
  const bool root = world_.rank() == case_.root;
  // Of a result that consists of parts: from whom an element is.
  const auto from = [&](std::size_t i) {
    return int(std::upper_bound(begins_.begin(), begins_.end(), i) - begins_.begin()) - 1;
  };
  switch (request_.kind) {
    case Kind::kReduce:
      if (!root) break;
      [[fallthrough]];
    case Kind::kAllReduce:
      return expect(count, [&](std::size_t i) { return reduced(i); });
    case Kind::kScan:
      return expect(count, [&](std::size_t i) { return reduced(i, int(me) + 1); });
    case Kind::kExscan:
      if (me > 0) return expect(count, [&](std::size_t i) { return reduced(i, int(me)); });
      return expect_untouched();
    case Kind::kReduceScatter:
      return expect(count, [&](std::size_t i) { return reduced(me * count + i); });
    case Kind::kBroadcast:
      return expect(count, [&](std::size_t i) { return value(case_.root, i); });
    case Kind::kGather:
      if (!root) break;
      [[fallthrough]];
    case Kind::kAllGather:
      return expect(n * count, [&](std::size_t i) { return value(int(i / count), i % count); });
    case Kind::kScatter:
      return expect(count, [&](std::size_t i) { return value(case_.root, me * count + i); });
    case Kind::kAllToAll:
      return expect(n * count, [&](std::size_t i) { return value(int(i / count), me * count + i % count); });
    case Kind::kGatherV:
      if (!root) break;
      [[fallthrough]];
    case Kind::kAllGatherV:
      return expect(begins_.back() + splits_.back(), [&](std::size_t i) { return value(from(i), i); });
    case Kind::kScatterV:
      return expect(splits_[me], [&](std::size_t i) { return value(case_.root, begins_[me] + i); });
    case Kind::kReduceScatterV:
      return expect(splits_[me], [&](std::size_t i) { return reduced(begins_[me] + i); });
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
}

}  // namespace tutti::test
