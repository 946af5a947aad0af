#include "tutti/models/image/pictures.h"

#include <ATen/Functions.h>

namespace tutti {
namespace {

constexpr float kMean = 0.2860f, kDeviation = 0.3530f;  // of the training set, on a scale of 0 to 1

}  // namespace

Pictures::Pictures(const ImageDataset& data) : data_(data) {
  for (std::size_t grey = 0; grey < normalised_.size(); ++grey)
    normalised_[grey] = (float(grey) / 255 - kMean) / kDeviation;
}

PictureBatch Pictures::batch(const std::vector<std::int64_t>& samples) const {
  const auto count = std::int64_t(samples.size());
  const std::size_t pixels = data_.rows * data_.columns;
  PictureBatch batch{at::empty({count, 1, std::int64_t(data_.rows), std::int64_t(data_.columns)}, at::kFloat),
                     at::empty({count}, at::kLong)};
  float* out = batch.pictures.data_ptr<float>();
  auto* labels = batch.labels.data_ptr<std::int64_t>();
  for (auto sample : samples) {
    const auto* picture = data_.picture(std::size_t(sample));
    for (std::size_t i = 0; i < pixels; ++i) *out++ = normalised_[picture[i]];
    *labels++ = data_.labels[std::size_t(sample)];
  }
  return batch;
}

}  // namespace tutti
