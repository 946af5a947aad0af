#pragma once
// Fashion-MNIST: 60,000 training and 10,000 test images of 28 x 28 grey pixels in 10 classes (arXiv:1708.07747).
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct ImageDataset {
  std::size_t rows = 0, columns = 0, classes = 0;
  std::vector<std::uint8_t> pixels;  // size() * rows * columns, one image after another
  std::vector<std::uint8_t> labels;  // < classes

  std::size_t size() const { return labels.size(); }
  const std::uint8_t* picture(std::size_t index) const { return pixels.data() + index * rows * columns; }
};

enum class Split { kTrain, kTest };

inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

// Reads NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte (NAME: train, t10k), with or without .gz, from the folder. A
// missing file's error names it and says how to get it. Damaged files: see read_idx().
Result<ImageDataset> load_fashion_mnist(const std::string& folder, Split split);

}  // namespace tutti
