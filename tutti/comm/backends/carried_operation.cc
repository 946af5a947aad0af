#include "tutti/comm/backends/carried_operation.h"

#include <cstring>
#include <vector>

#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/kernels/widen.h"
#include "tutti/comm/layout.h"

namespace tutti::comm {
namespace {

DType real_of(DType dtype) { return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype; }

class CarriedOperation final : public Operation {
 public:
  CarriedOperation(const Request& request, int rank, int size) : request_(request), carried_(request) {
    for (int r = 0; r < size; ++r)
      if (r != rank) peers_.push_back(r);
    if (is_point_to_point(request.kind) && request.root != kAnySource) peers_ = {request.root};
    if (!is_reduction(request.kind)) return;
    has_result_ = gets(request, rank);
    const Extent extent = *extent_of(request, rank, size);
    result_count_ = extent.out;
    divisor_ = request.op == ReduceOp::kAvg ? summands(request.kind, rank, size) : 1;
    const bool multiplies = request.op == ReduceOp::kPremulSum;
    if (request.op == ReduceOp::kAvg || multiplies) carried_.op = ReduceOp::kSum;
    if (request.dtype == DType::kBool) {
      carried_.dtype = DType::kU8;
      carried_.op = op_for_bool(request.op);
    }
    const void* given = request.in;
    DType given_as = request.dtype;
    if (is_16_bit_float(request.dtype)) {
      carried_.dtype = given_as = DType::kF32;
      wide_in_.resize(extent.in);
      widen(request.dtype, request.in, wide_in_.data(), extent.in);
      given = wide_in_.data();
      if (has_result_) {
        wide_out_.resize(extent.out);
        carried_.out = wide_out_.data();
      }
    }
    if (multiplies || overlaps(extent.in)) {
      const std::size_t bytes = extent.in * size_of(given_as);
      copy_.resize(bytes);
      const void* const from[] = {given};
      void* const to[] = {copy_.data()};
      if (multiplies)
        reduce_many(given_as, ReduceOp::kPremulSum, from, to, extent.in, 1, &request.factor);
      else if (bytes > 0)
        std::memcpy(copy_.data(), given, bytes);
      given = copy_.data();
    }
    carried_.in = given;
    if (is_complex(request.dtype)) carry_as_pairs();
  }

  Status start(Backend& backend, std::uint64_t sequence) {
    inner_ = TUTTI_TRY(backend.start(carried_, sequence));
    return {};
  }

  Result<Progress> step() override {
    const Progress progress = TUTTI_TRY(inner_->step());
    if (progress == Progress::kDone) finish();
    return progress;
  }
  void blockers(Blockers& blockers) const override {
    blockers.carried = true;
    blockers.ranks = peers_;
    inner_->blockers(blockers);
  }

 private:
  // Whether the output is a part of the input. Libraries misinterpret or reject that.
  bool overlaps(std::size_t given) const {
    if (!gives_parts(request_.kind)) return false;
    const auto* const in = static_cast<const std::byte*>(request_.in);
    const auto* const out = static_cast<const std::byte*>(request_.out);
    return out >= in && out < in + given * size_of(request_.dtype);
  }
  // A sum of complex numbers is a sum of twice as many real numbers.
  void carry_as_pairs() {
    carried_.dtype = real_of(request_.dtype);
    carried_.count *= 2;
    for (std::size_t split : request_.in_splits) pairs_.push_back(2 * split);
    carried_.in_splits = pairs_;
  }
  void finish() {
    if (!is_reduction(request_.kind) || !has_result_) return;
    if (divisor_ > 1)
      divide(carried_.dtype, carried_.out, is_complex(request_.dtype) ? 2 * result_count_ : result_count_, divisor_);
    if (!wide_out_.empty()) narrow(request_.dtype, wide_out_.data(), request_.out, result_count_);
  }

  const Request request_;
  Request carried_;
  std::vector<int> peers_;
  bool has_result_ = false;
  std::size_t result_count_ = 0;
  int divisor_ = 1;
  std::vector<float> wide_in_, wide_out_;
  std::vector<std::byte> copy_;
  std::vector<std::size_t> pairs_;
  std::unique_ptr<Operation> inner_;  // destroyed first: it uses the members above
};

}  // namespace

Result<std::unique_ptr<Operation>> start_carried(Backend& backend, const Request& request, std::uint64_t sequence,
                                                 int rank, int size) {
  auto operation = std::make_unique<CarriedOperation>(request, rank, size);
  TUTTI_TRY(operation->start(backend, sequence));
  return std::unique_ptr<Operation>(std::move(operation));
}

BackendServices backend_services() { return {.reduce_pair = reduce_pair, .find_cuda_library = cuda::find_library}; }

}  // namespace tutti::comm
