#include "tutti/parallel/data_parallel/precision/mixed_precision.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/parallel/data_parallel/precision/autocast_now.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

#if TUTTI_TORCH_AT_LEAST(2, 4)
constexpr bool kHasHalf = true;
bool enabled() { return at::autocast::is_autocast_enabled(at::kCPU); }
at::ScalarType type_now() { return at::autocast::get_autocast_dtype(at::kCPU); }
void set(bool on, at::ScalarType type) {
  at::autocast::set_autocast_enabled(at::kCPU, on);
  at::autocast::set_autocast_dtype(at::kCPU, type);
}
#else
constexpr bool kHasHalf = false;
bool enabled() { return at::autocast::is_cpu_enabled(); }
at::ScalarType type_now() { return at::autocast::get_autocast_cpu_dtype(); }
void set(bool on, at::ScalarType type) {
  at::autocast::set_cpu_enabled(on);
  at::autocast::set_autocast_cpu_dtype(type);
}
#endif

}  // namespace

Status check_computes_in(DType type) {
  if (type != DType::kF16 || kHasHalf) return {};
  return Error{.code = Code::kUnsupported,
               .detail = fmt::format("LibTorch {} cannot multiply f16 matrices on a CPU", torch_version()),
               .hint = "compute in bf16 (DType::kBF16), or send only the gradients in f16 (f16_compression())"};
}

Autocast::Autocast(std::optional<DType> type) {
  if (!type) return;
  TUTTI_REQUIRE(*type == DType::kF32 || *type == DType::kBF16 || *type == DType::kF16, "Autocast to ", name(*type),
                ": expected bf16 or f16, or f32 for none");
  check_computes_in(*type).or_throw();
  active_ = true;
  was_enabled_ = enabled();
  previous_type_ = int(type_now());
  at::autocast::increment_nesting();
  set(*type != DType::kF32, *type == DType::kF16 ? at::kHalf : at::kBFloat16);
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // of casted weights
  set(was_enabled_, at::ScalarType(previous_type_));
}

DType autocast_now() {
  if (!enabled()) return DType::kF32;
  return type_now() == at::kHalf ? DType::kF16 : DType::kBF16;
}

}  // namespace tutti
