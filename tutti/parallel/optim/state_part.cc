// A run of elements of a matrix is the end of one row, some whole rows and the beginning of another; of a tensor of
// more dimensions likewise, one dimension after another. So each part of a state has boxes in the shape of the
// parameter, and a checkpoint does not know how many ranks wrote it.
#include "tutti/parallel/optim/state_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

// More than any training makes, and far from where a counter overflows.
constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;

TensorShape shape_of(const StatePart& part) { return {part.shape.begin(), part.shape.end()}; }

template <class Act>  // act(key, dtype, shape, box, first element of it)
Status for_boxes(const StatePart& part, const Act& act) {
  const auto bytes = checked_bytes(part.values, part.state + " of " + part.parameter);
  auto* at = static_cast<std::byte*>(bytes.data);
  for (const auto& box : boxes_of_run(shape_of(part), std::uint64_t(part.begin), bytes.count)) {
    TUTTI_TRY(act(bytes.dtype, box, at));
    at += box.elements() * size_of(bytes.dtype);
  }
  return {};
}

}  // namespace

std::vector<TensorBox> boxes_of_run(const TensorShape& shape, std::uint64_t begin, std::uint64_t count) {
  std::vector<TensorBox> boxes;
  if (count == 0) return boxes;
  if (shape.empty()) return {TensorBox::whole(shape)};
  std::uint64_t end = begin + count;
  // Below each index of dimension d lie `inner` elements. Take the largest whole sub-tensors that begin here and fit.
  while (begin < end) {
    std::uint64_t inner = 1;
    std::size_t d = shape.size() - 1;
    while (d > 0 && begin % (inner * shape[d]) == 0 && end - begin >= inner * shape[d]) inner *= shape[d--];
    TensorBox box{TensorShape(shape.size()), TensorShape(shape.size(), 1)};
    std::uint64_t place = begin / inner;
    for (std::size_t k = d + 1; k-- > 0;) {
      box.begin[k] = place % shape[k];
      place /= shape[k];
    }
    for (std::size_t k = d + 1; k < shape.size(); ++k) box.extent[k] = shape[k];
    box.extent[d] = std::min(shape[d] - box.begin[d], (end - begin) / inner);
    begin += box.extent[d] * inner;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

std::vector<SavedBox> saved_boxes(std::span<const StatePart> parts) {
  std::vector<SavedBox> boxes;
  for (const auto& part : parts) {
    for_boxes(part, [&](DType dtype, const TensorBox& box, std::byte* at) -> Status {
      boxes.push_back(
          {.key = {part.parameter, part.state}, .dtype = dtype, .shape = shape_of(part), .box = box, .data = at});
      return {};
    }).or_throw();
  }
  return boxes;
}

std::vector<ExpectedTensor> expected_tensors(std::span<const StatePart> parts) {
  std::vector<ExpectedTensor> wanted;
  for (const auto& part : parts) {
    const auto dtype = checked_bytes(part.values, part.state + " of " + part.parameter).dtype;
    wanted.push_back({{part.parameter, part.state}, dtype, shape_of(part)});
  }
  return wanted;
}

Status read_state(const CheckpointReader& reader, std::span<const StatePart> parts) {
  for (const auto& part : parts) {
    if (part.values.numel() == 0) continue;
    const TensorKey key{part.parameter, part.state};
    const StoredTensor* stored = reader.find(key);
    if (!stored)
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{} has no {}", reader.folder(), to_string(key)),
                   .hint = "it was saved by another optimizer, or for another model"};
    TUTTI_TRY(for_boxes(part, [&](DType dtype, const TensorBox& box, std::byte* at) -> Status {
      if (stored->dtype != dtype || stored->shape != shape_of(part))
        return Error{.code = Code::kMismatch,
                     .detail = fmt::format("{}: {} is {}{} there, and {}{} in this model", reader.folder(),
                                           to_string(key), name(stored->dtype), shape_text(stored->shape), name(dtype),
                                           shape_text(shape_of(part)))};
      return reader.read(key, box, at);
    }));
  }
  return check_steps(reader, parts);
}

Status check_steps(const CheckpointReader& reader, std::span<const StatePart> parts) {
  for (const auto& part : parts) {
    if (part.state != "step") continue;
    const std::int64_t step = *part.values.data_ptr<std::int64_t>();
    if (step < 0 || step > kMostSteps)
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{}: {} is {}, expected 0 to {}", reader.folder(),
                                         to_string(TensorKey{part.parameter, part.state}), step, kMostSteps)};
  }
  return {};
}

void copy_state(std::span<const StatePart> from, std::span<const StatePart> to) {
  for (const auto& part : to) {
    std::int64_t missing = part.values.numel();
    for (const auto& source : from) {
      if (source.parameter != part.parameter || source.state != part.state || source.shape != part.shape) continue;
      const std::int64_t begin = std::max(part.begin, source.begin);
      const std::int64_t end = std::min(part.begin + part.values.numel(), source.begin + source.values.numel());
      if (end <= begin) continue;
      part.values.view({-1})
          .narrow(0, begin - part.begin, end - begin)
          .copy_(source.values.reshape({-1}).narrow(0, begin - source.begin, end - begin));
      missing -= end - begin;
    }
    TUTTI_REQUIRE(missing <= 0, "the state given has not all of ", part.state, " of ", part.parameter, ": ", missing,
                  " of ", part.values.numel(),
                  " elements are missing; was it another optimizer's, or another model's?");
  }
}

}  // namespace tutti
