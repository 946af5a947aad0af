#include "tutti/tensor/memory_report.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdint>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

std::string held_by(const std::vector<NamedTensor>& parameters) {
  std::uint64_t weights = 0, gradients = 0;
  NamedTensor largest;
  for (const NamedTensor& parameter : without_repeats(parameters)) {
    weights += parameter.tensor.nbytes();
    if (const at::Tensor& gradient = parameter.tensor.grad(); gradient.defined() && !gradient.is_sparse())
      gradients += gradient.nbytes();
    if (!largest.tensor.defined() || parameter.tensor.nbytes() > largest.tensor.nbytes()) largest = parameter;
  }
  if (!largest.tensor.defined()) return "the model has no weights here";
  return fmt::format("the weights take {}, of which {} {} takes {}, and their gradients {}", bytes_text(weights),
                     largest.name, describe(largest.tensor), bytes_text(largest.tensor.nbytes()),
                     bytes_text(gradients));
}

}  // namespace

void report_memory(const Group& world, const std::string& where,
                   const std::function<std::vector<NamedTensor>()>& parameters, const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::OutOfMemoryError& error) {
    const std::string said = error.what_without_backtrace();
    throw Exception(Error{.code = Code::kLimit,
                          .detail = fmt::format("no memory is left in {}: {}; {}", where,
                                                said.substr(0, said.find('\n')), held_by(parameters())),
                          .hint = "a smaller batch, recomputation or more ranks that divide the model need less; "
                                  "nvidia-smi shows what other processes hold",
                          .group = world.name(),
                          .rank = world.rank()});
  }
}

}  // namespace tutti
