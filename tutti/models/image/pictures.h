#pragma once
// Pictures of a dataset as tensors.
#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "tutti/data/fashion_mnist.h"

namespace tutti {

struct PictureBatch {
  at::Tensor pictures;  // f32[n, 1, rows, columns], normalised to the training set's mean and deviation
  at::Tensor labels;    // i64[n]
};

// Any thread, several at once. The dataset has to stay.
class Pictures {
 public:
  explicit Pictures(const ImageDataset& data);
  PictureBatch batch(const std::vector<std::int64_t>& samples) const;

 private:
  const ImageDataset& data_;
  std::array<float, 256> normalised_;
};

}  // namespace tutti
