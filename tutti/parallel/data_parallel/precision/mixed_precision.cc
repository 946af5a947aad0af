#include "tutti/parallel/data_parallel/precision/mixed_precision.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

#if TUTTI_TORCH_AT_LEAST(2, 4)
constexpr bool kHasHalf = true;
AutocastSettings::Setting setting_of(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), int(at::autocast::get_autocast_dtype(device))};
}
void set(at::DeviceType device, const AutocastSettings::Setting& setting) {
  at::autocast::set_autocast_enabled(device, setting.on);
  at::autocast::set_autocast_dtype(device, at::ScalarType(setting.type));
}
#else
constexpr bool kHasHalf = false;
AutocastSettings::Setting setting_of(at::DeviceType device) {
  if (device == at::kCPU) return {at::autocast::is_cpu_enabled(), int(at::autocast::get_autocast_cpu_dtype())};
  return {at::autocast::is_enabled(), int(at::autocast::get_autocast_gpu_dtype())};
}
void set(at::DeviceType device, const AutocastSettings::Setting& setting) {
  if (device == at::kCPU) {
    at::autocast::set_cpu_enabled(setting.on);
    at::autocast::set_autocast_cpu_dtype(at::ScalarType(setting.type));
  } else {
    at::autocast::set_enabled(setting.on);
    at::autocast::set_autocast_gpu_dtype(at::ScalarType(setting.type));
  }
}
#endif

void set_all(const AutocastSettings& settings) {
  set(at::kCPU, settings.cpu);
  set(at::kCUDA, settings.gpu);
}

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
  const AutocastSettings::Setting both = {*type != DType::kF32, int(*type == DType::kF16 ? at::kHalf : at::kBFloat16)};
  begin({both, both});
}

Autocast::Autocast(const AutocastSettings& settings) { begin(settings); }

void Autocast::begin(const AutocastSettings& settings) {
  active_ = true;
  before_ = autocast_now();
  at::autocast::increment_nesting();
  set_all(settings);
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // of casted weights
  set_all(before_);
}

AutocastSettings autocast_now() { return {setting_of(at::kCPU), setting_of(at::kCUDA)}; }

}  // namespace tutti
