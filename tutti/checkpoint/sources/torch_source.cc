// A tensor of PyTorch is a view of a storage. Most are packed, and are read as they lie; another (a transposed one, a
// column) is read as a whole, and its elements are picked.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tutti/checkpoint/sources/sources.h"
#include "tutti/checkpoint/torch/torch_file.h"
#include "tutti/checkpoint/torch/torch_tree.h"

namespace tutti {
namespace {

// By the sign bits of PyTorch's lazy views: that of each number is in its last byte.
void flip_signs(const TorchTensor& tensor, std::span<std::byte> elements) {
  if (!tensor.negated && !tensor.conjugated) return;
  const bool is_complex = tensor.dtype.starts_with('C');
  const std::uint64_t element = tensor.element_bytes, number = is_complex ? element / 2 : element;
  for (std::uint64_t end = number; end <= elements.size(); end += number) {
    const bool is_imaginary = is_complex && end % element == 0;
    if (tensor.negated != (tensor.conjugated && is_imaginary)) elements[end - 1] ^= std::byte(0x80);
  }
}

class PackedView : public PackedBytes {
 public:
  PackedView(const TorchFile& file, const TorchTensor& tensor) : file_(file), tensor_(tensor) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    TUTTI_TRY(file_.read(tensor_.storage, tensor_.first * tensor_.element_bytes + begin, into));
    flip_signs(tensor_, into);
    return {};
  }

 private:
  const TorchFile& file_;
  const TorchTensor& tensor_;
};

class StridedView : public PackedBytes {
 public:
  StridedView(const TorchFile& file, const TorchTensor& tensor) : file_(file), tensor_(tensor) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    const std::uint64_t element = tensor_.element_bytes;
    if (span_.empty()) {
      span_.resize(*tensor_.span_elements() * element);
      TUTTI_TRY(file_.read(tensor_.storage, tensor_.first * element, span_));
    }
    for (std::uint64_t i = 0; i < into.size() / element; ++i) {
      std::uint64_t place = begin / element + i, at = 0;
      for (std::size_t d = tensor_.strides.size(); d > 0; --d) {
        at += place % tensor_.box.extent[d - 1] * tensor_.strides[d - 1];
        place /= tensor_.box.extent[d - 1];
      }
      std::memcpy(into.data() + i * element, span_.data() + at * element, element);
    }
    flip_signs(tensor_, into);
    return {};
  }

 private:
  const TorchFile& file_;
  const TorchTensor& tensor_;
  std::vector<std::byte> span_;
};

class TorchSource : public TensorSource {
 public:
  explicit TorchSource(std::unique_ptr<TorchFile> file) : file_(std::move(file)) {
    path_ = file_->path();
    format_ = "PyTorch file";
    has_digests_ = file_->has_digests();
  }

  Status read_tree() {
    auto tree = read_torch_tree(file_->pickle());
    if (!tree.ok()) {
      Error error = tree.error();
      error.detail = fmt::format("{}: {}", path_, error.detail);
      return error;
    }
    TorchTree read = *std::move(tree);
    about_ = std::move(read.tree);
    all_ = std::move(read.tensors);
    skipped_ = std::move(read.skipped);
    for (std::size_t t = 0; t < all_.size(); ++t) TUTTI_TRY(add(t));
    return {};
  }

  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t part) const override {
    const TorchTensor& tensor = all_[places_.at(key.name).at(part)];
    if (tensor.is_packed()) return std::unique_ptr<PackedBytes>(std::make_unique<PackedView>(*file_, tensor));
    return std::unique_ptr<PackedBytes>(std::make_unique<StridedView>(*file_, tensor));
  }

 private:
  Status add(std::size_t number) {
    TorchTensor& tensor = all_[number];
    if (tensor.name.empty()) tensor.name = "tensor";  // the file is nothing else
    const auto corrupt = [&](std::string what) {
      return Error{.code = Code::kCorrupt, .detail = fmt::format("{}: {} {}", path_, tensor.name, what)};
    };
    const std::uint64_t span = *tensor.span_elements(), bytes = TUTTI_TRY(file_->storage_bytes(tensor.storage));
    const std::uint64_t there = bytes / tensor.element_bytes;
    if (span > there || tensor.first > there - span)
      return corrupt(fmt::format("has elements {} to {} of its storage {}, which has {}", tensor.first,
                                 tensor.first + span, tensor.storage, there));
    if (tensor.box.elements() > there)
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("{}: {} {} is expanded: its storage has {} elements", path_, tensor.name,
                                         shape_text(tensor.box.extent), there),
                   .hint = "save tensor.contiguous()"};
    auto& places = places_[tensor.name];
    SourceTensor& whole = tensors_[{tensor.name, ""}];
    if (!places.empty() &&
        (whole.shape != tensor.shape || whole.dtype != tensor.dtype || tensor.box == TensorBox::whole(tensor.shape)))
      return corrupt("is there twice");
    for (const TensorPart& part : whole.parts)
      if (part.box.overlaps(tensor.box)) return corrupt("has shards that overlap");
    whole.dtype = tensor.dtype;
    whole.element_bytes = tensor.element_bytes;
    whole.shape = tensor.shape;
    whole.parts.push_back({tensor.box, std::filesystem::path(path_).filename().string()});
    places.push_back(number);
    return {};
  }

  const std::unique_ptr<TorchFile> file_;
  std::vector<TorchTensor> all_;
  std::map<std::string, std::vector<std::size_t>> places_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_torch_file(const std::string& path) {
  auto source = std::make_unique<TorchSource>(TUTTI_TRY(TorchFile::open(path)));
  TUTTI_TRY(source->read_tree());
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace tutti
