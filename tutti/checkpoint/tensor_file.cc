#include "tutti/checkpoint/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tutti/checkpoint/io/snapshot.h"
#include "tutti/checkpoint/open.h"

namespace tutti {
namespace {

Status check_same_tensors(const std::string& path, const TensorSource& source, const StateDict& state) {
  std::set<TensorKey> known;
  for (const StateBox& box : state.boxes()) {
    known.insert(box.key);
    const SourceTensor* const found = source.find(box.key);
    const std::string wanted = name(box.dtype) + shape_text(box.shape);
    if (!found)
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{} has no tensor {}, which the model has ({})", path, to_string(box.key),
                                         wanted)};
    if (found->shape != box.shape || found->known_dtype() != box.dtype)
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{}: {} is {}{} in the file and {} in the model", path, to_string(box.key),
                                         found->dtype, shape_text(found->shape), wanted)};
  }
  if (state.others_allowed()) return {};
  for (const auto& [key, tensor] : source.tensors())
    if (!known.contains(key))
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{} holds {}, which the model does not have", path, to_string(key))};
  return {};
}

Status load_box(TensorStream& stream, const StateBox& box) {
  if (!box.source) return stream.read(box_of(box), static_cast<std::byte*>(box.data), box.row_stride);
  const TensorBox whole = box_of(box);
  const std::uint64_t rows = whole.row_count(), bytes = whole.row_elements() * size_of(box.dtype);
  const std::uint64_t at_once = std::min(rows, std::max<std::uint64_t>(1, kChunkBytes / bytes));
  std::vector<std::byte> buffer(at_once * bytes);
  for (std::uint64_t first = 0; first < rows; first += at_once) {
    TensorBox part = whole;
    if (!whole.extent.empty()) {
      part.begin[0] += first;
      part.extent[0] = std::min(at_once, rows - first);
    }
    TUTTI_TRY(stream.read(part, buffer.data()));
    TUTTI_TRY(box.sink(first, part.row_count(), buffer.data()));
  }
  return {};
}

}  // namespace

Status save_tensors(const std::string& path, const StateDict& state, const SafetensorsMetadata& metadata) {
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::vector<SafetensorsTensor> tensors;
  for (const StateBox& box : state.boxes()) {
    TUTTI_TRY(check(box));
    if (box_of(box) != TensorBox::whole(box.shape))
      return invalid_argument(fmt::format("{}: this rank has only {} of the tensor {}{}", path, box_text(box_of(box)),
                                          to_string(box.key), shape_text(box.shape)));
    const void* data = box.data;
    if (box.source || box.row_stride != 0) {
      copies.push_back(std::make_unique<std::byte[]>(bytes_of(box)));
      TUTTI_TRY(copy_box(box, copies.back().get()));
      data = copies.back().get();
    }
    tensors.push_back({.name = box.key.state.empty() ? box.key.name : box.key.name + "/" + box.key.state,
                       .dtype = box.dtype,
                       .shape = box.shape,
                       .data = data});
  }
  return write_safetensors(path, tensors, metadata);
}

Status load_tensors(const std::string& path, const StateDict& state) {
  const auto source = TUTTI_TRY(open_tensors(path));
  TUTTI_TRY(check_same_tensors(path, *source, state));
  for (const StateBox& box : state.boxes()) {
    if (bytes_of(box) == 0) continue;
    const auto stream = TUTTI_TRY(source->stream(box.key));
    TUTTI_TRY(load_box(*stream, box));
  }
  return {};
}

}  // namespace tutti
