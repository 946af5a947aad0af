// All sums of a GPU run on one stream of LibTorch's pool. Their inputs are complete when they start, so they wait for
// no other stream. LibTorch keeps free memory by stream: on many streams the temporary memory would add up.
//
// Inputs may be memory of another GPU that this GPU can read. LibTorch gets it as memory of this GPU.
//
// The bits are those of the CPU's kernels, so only what LibTorch's kernels compute alike is added here:
//   - sums and averages of floating types, and all operators of integers
//   - 16-bit types in f32, rounded once; f32 products are exact to the last bit on both
//   - a divisor is a tensor on the GPU: LibTorch multiplies by the reciprocal of a number of the host
// Floating minima and maxima are staged, since kernels differ in the sign of zero. So are premultiplied sums, which
// compilers for the CPU may fuse, and complex numbers, which LibTorch multiplies by a factor of one.
#include "tutti/tensor/device_adder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tutti/base/mutex.h"
#include "tutti/comm/cuda/adder.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

constexpr std::size_t kPiece = std::size_t(1) << 24;  // elements added at once, which bounds the temporary memory

c10::ScalarType torch_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI8:
      return at::kChar;
    case DType::kU8:
      return at::kByte;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kBool:
      return at::kBool;
    case DType::kC64:
      return at::kComplexFloat;
    case DType::kC128:
      return at::kComplexDouble;
  }
  return at::kFloat;
}

bool adds(DType dtype, ReduceOp op) {
  if (op == ReduceOp::kPremulSum) return false;
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
      return op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProduct;
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
      return true;
    case DType::kC64:
    case DType::kC128:
      return false;
  }
  return false;
}

// into = a op b
void combine(ReduceOp op, at::Tensor& into, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      at::add_out(into, a, b);
      return;
    case ReduceOp::kProduct:
      at::mul_out(into, a, b);
      return;
    case ReduceOp::kMin:
      at::minimum_out(into, a, b);
      return;
    case ReduceOp::kMax:
      at::maximum_out(into, a, b);
      return;
    case ReduceOp::kBand:
      at::bitwise_and_out(into, a, b);
      return;
    case ReduceOp::kBor:
      at::bitwise_or_out(into, a, b);
      return;
    case ReduceOp::kBxor:
      at::bitwise_xor_out(into, a, b);
      return;
    case ReduceOp::kPremulSum:
      break;
  }
  TUTTI_INVARIANT(false, "an operator that is never added on a GPU");
}

void divide(at::Tensor& sum, std::int64_t divisor) {
  if (c10::isIntegralType(sum.scalar_type(), false))
    sum.div_(divisor, "trunc");
  else
    sum.div_(at::full({1}, double(divisor), sum.options()));
}

// The elements from `begin` on, `count` of them. There are two inputs or more.
void add_piece(const cuda::DeviceSum& sum, std::size_t begin, std::size_t count) {
  const c10::Device device(c10::kCUDA, c10::DeviceIndex(sum.device));
  const auto options = at::TensorOptions(torch_type(sum.dtype)).device(device);
  const auto over = [&](const void* memory) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(memory)) + begin * size_of(sum.dtype);
    return at::for_blob(at, {std::int64_t(count)}).options(options).target_device(device).make_tensor();
  };
  const ReduceOp op = sum.dtype == DType::kBool ? comm::op_for_bool(sum.op) : sum.op;
  const std::size_t n = sum.in.size();
  const bool is_short = sum.dtype == DType::kF16 || sum.dtype == DType::kBF16;
  const bool is_wide = is_short && (n > 2 || op == ReduceOp::kAvg);  // one sum of two is rounded once as it is
  const bool is_read_later = std::find(sum.in.begin() + 2, sum.in.end(), sum.out) != sum.in.end();
  at::Tensor out = over(sum.out), first = over(sum.in[0]);
  if (is_wide) first = first.to(at::kFloat);
  at::Tensor total = is_wide ? first : is_read_later ? at::empty_like(out) : out;
  combine(op, total, first, over(sum.in[1]));
  for (std::size_t r = 2; r < n; ++r) combine(op, total, total, over(sum.in[r]));
  if (op == ReduceOp::kAvg) divide(total, std::int64_t(n));
  if (is_wide || is_read_later) out.copy_(total);
}

Error could_not_add(const std::exception& e) {
  return {.code = Code::kSystem, .detail = std::string("LibTorch could not add on the GPU: ") + e.what()};
}

class TorchSum final : public cuda::SumInFlight {
 public:
  // `failed`: part of the sum could not be started. The rest may run, and is waited for.
  TorchSum(c10::impl::VirtualGuardImpl guard, c10::Stream stream, std::optional<Error> failed)
      : guard_(guard), stream_(stream), failed_(std::move(failed)) {
    guard_.record(&event_, stream_, stream_.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
  }
  ~TorchSum() override { guard_.destroyEvent(event_, stream_.device_index()); }
  Result<bool> has_ended() override {
    try {
      if (!guard_.queryEvent(event_)) return false;
    } catch (const std::exception& e) {
      return could_not_add(e);
    }
    if (failed_) return *failed_;
    return true;
  }

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  const std::optional<Error> failed_;
  void* event_ = nullptr;
};

c10::Stream stream_for_sums(const c10::impl::VirtualGuardImpl& guard, c10::Device device) {
  static Mutex mutex;
  static auto* const streams = new std::map<c10::DeviceIndex, c10::Stream>;  // never freed: threads may outlive main()
  const MutexLock lock(mutex);
  const auto found = streams->find(device.index());
  if (found != streams->end()) return found->second;
  return streams->emplace(device.index(), guard.getStreamFromGlobalPool(device, true)).first->second;
}

Result<std::unique_ptr<cuda::SumInFlight>> start(const cuda::DeviceSum& sum) {
  try {
    const at::NoGradGuard no_grad;
    // The thread that drives the call may be in a mode of PyTorch that records operators.
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
    const c10::Device device(c10::kCUDA, c10::DeviceIndex(sum.device));
    const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
    const c10::DeviceGuard on_device(device);
    const c10::StreamGuard on_stream(stream_for_sums(guard, device));
    std::optional<Error> failed;
    try {
      for (std::size_t begin = 0; begin < sum.count; begin += kPiece)
        add_piece(sum, begin, std::min(kPiece, sum.count - begin));
    } catch (const std::exception& e) {
      failed = could_not_add(e);
    }
    return std::unique_ptr<cuda::SumInFlight>(
        std::make_unique<TorchSum>(guard, on_stream.current_stream(), std::move(failed)));
  } catch (const std::exception& e) {
    return could_not_add(e);
  }
}

constexpr cuda::Adder kAdder{.adds = &adds, .start = &start};

}  // namespace

void use_torch_adder() {
  if (!cuda::adder()) cuda::set_adder(kAdder);
}

}  // namespace tutti
