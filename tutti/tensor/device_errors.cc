#include "tutti/tensor/device_errors.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

std::string text_of(const HeldMemory& held) {
  std::uint64_t weights = 0, gradients = 0;
  NamedTensor largest;
  for (const NamedTensor& parameter : without_repeats(held.parameters)) {
    if (!parameter.tensor.storage().data()) continue;  // FullySharded has released it
    weights += parameter.tensor.nbytes();
    if (const at::Tensor& gradient = parameter.tensor.grad(); gradient.defined() && !gradient.is_sparse())
      gradients += gradient.nbytes();
    if (!largest.tensor.defined() || parameter.tensor.nbytes() > largest.tensor.nbytes()) largest = parameter;
  }
  if (!largest.tensor.defined()) return "the model has no weights here";
  std::string text =
      fmt::format("the weights take {}, of which {} {} takes {}, and their gradients {}", bytes_text(weights),
                  largest.name, describe(largest.tensor), bytes_text(largest.tensor.nbytes()), bytes_text(gradients));
  if (held.optimizer_bytes > 0) text += fmt::format("; the optimizer takes {}", bytes_text(held.optimizer_bytes));
  return text;
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// LibTorch's error has the text of CUDA, but not its number.
std::string hint_of(const std::string& text) {
  const auto runtime = cuda::runtime();
  if (!runtime.ok()) return {};
  for (const int code : {46, 214, 700, 719, 802, 999})
    if (text.find((*runtime)->cudaGetErrorString(code)) != text.npos) return cuda::Runtime::hint_of(code);
  return {};
}

}  // namespace

void report_device_errors(const Group& world, std::string_view when, const std::function<HeldMemory()>& held,
                          const std::function<void()>& act) {
  const auto fail = [&](Code code, std::string detail, std::string hint) {
    throw Exception(Error{.code = code,
                          .detail = std::move(detail),
                          .hint = std::move(hint),
                          .group = world.name(),
                          .rank = world.rank()});
  };
  try {
    act();
  } catch (const c10::Error& error) {
    const std::string text = first_line(error);
    const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || has("CUDA error: out of memory"))
      fail(Code::kLimit, fmt::format("no memory is left {}: {}{}", when, text, held ? "; " + text_of(held()) : ""),
           "a smaller batch, recomputation or more ranks that divide the model need less; nvidia-smi shows what other "
           "processes hold");
    if (!has("CUDA error") && !has("cuDNN error") && !has("CUDA driver error")) throw;
    fail(Code::kSystem, fmt::format("{} failed {}: {}", world.device(), when, text), hint_of(text));
  }
}

}  // namespace tutti
