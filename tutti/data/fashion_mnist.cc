#include "tutti/data/fashion_mnist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tutti/data/idx.h"

namespace tutti {
namespace {

constexpr std::size_t kClasses = 10;
constexpr std::size_t kSide = 28;  // of a picture, in pixels
constexpr const char* kHint =
    "install the Debian package dataset-fashion-mnist (apt-get install dataset-fashion-mnist), or pass the folder with "
    "--data";

Result<std::string> find(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("there is no folder {} with Fashion-MNIST", folder),
                 .hint = kHint};
  }
  for (const char* ending : {".gz", ""}) {
    const std::string path = (std::filesystem::path(folder) / (name + ending)).string();
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return Error{.code = Code::kNotFound,
               .detail = fmt::format("{} holds neither {}.gz nor {}", folder, name, name),
               .hint = kHint};
}

}  // namespace

Result<ImageDataset> load_fashion_mnist(const std::string& folder, Split split) {
  const std::string name = split == Split::kTrain ? "train" : "t10k";
  const auto image_path = TUTTI_TRY(find(folder, name + "-images-idx3-ubyte"));
  const auto label_path = TUTTI_TRY(find(folder, name + "-labels-idx1-ubyte"));
  auto images = TUTTI_TRY(read_idx(image_path));
  auto labels = TUTTI_TRY(read_idx(label_path));
  auto corrupt = [](std::string detail) {
    return Error{.code = Code::kCorrupt, .detail = std::move(detail), .hint = "fetch the file again"};
  };
  if (images.shape.size() != 3) {
    return corrupt(fmt::format("{}: expected 3 dimensions (images, rows, columns), found shape [{}]", image_path,
                               fmt::join(images.shape, ", ")));
  }
  const std::size_t count = images.shape[0], rows = images.shape[1], columns = images.shape[2];
  if (count == 0) return corrupt(fmt::format("{}: byte 4: expected at least one image, found none", image_path));
  if (rows != kSide || columns != kSide) {
    return corrupt(fmt::format("{}: byte {}: expected images of {} x {} pixels, found {} x {}", image_path,
                               rows != kSide ? 8 : 12, kSide, kSide, rows, columns));
  }
  if (labels.shape.size() != 1) {
    return corrupt(
        fmt::format("{}: expected 1 dimension, found shape [{}]", label_path, fmt::join(labels.shape, ", ")));
  }
  if (count != labels.shape[0]) {
    return corrupt(
        fmt::format("{} holds {} images, but {} holds {} labels", image_path, count, label_path, labels.shape[0]));
  }
  const auto wrong =
      std::find_if(labels.values.begin(), labels.values.end(), [](std::uint8_t label) { return label >= kClasses; });
  if (wrong != labels.values.end()) {
    const std::size_t header = 8;  // magic and one dimension
    return corrupt(fmt::format("{}: byte {}: expected a label below {}, found {}", label_path,
                               header + std::size_t(wrong - labels.values.begin()), kClasses, *wrong));
  }
  return ImageDataset{.rows = rows,
                      .columns = columns,
                      .classes = kClasses,
                      .pixels = std::move(images.values),
                      .labels = std::move(labels.values)};
}

}  // namespace tutti
