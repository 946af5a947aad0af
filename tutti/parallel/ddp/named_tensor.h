#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace tutti {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace tutti
