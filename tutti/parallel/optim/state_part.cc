// A run of elements of a matrix is the end of one row, some whole rows and the beginning of another; of a tensor of
// more dimensions likewise, one dimension after another. So each part of a state has boxes in the shape of the
// parameter, and a checkpoint does not know how many ranks wrote it.
#include "tutti/parallel/optim/state_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/module_state.h"

namespace tutti {
namespace {

// More than any training makes, and far from where a counter overflows.
constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;

TensorShape whole_shape(const StatePart& part) { return {part.shape.begin(), part.shape.end()}; }

// Where a box of a layout lies in this rank's tensor.
struct PlacedBox {
  TensorBox here, whole;
};
std::vector<PlacedBox> placed_boxes(const ParameterLayout& layout) {
  if (!layout.divided()) return {{TensorBox::whole(layout.shape), TensorBox::whole(layout.shape)}};
  std::vector<PlacedBox> placed;
  std::uint64_t begin = 0;
  const auto dimension = std::size_t(layout.dimension);
  for (const TensorBox& box : layout.boxes) {
    if (box.elements() == 0) continue;
    TensorBox here{TensorShape(box.begin.size(), 0), box.extent};
    here.begin[dimension] = begin;
    begin += box.extent[dimension];
    placed.push_back({here, box});
  }
  return placed;
}

// The boxes of a tensor of this shape that a part is made of, each with its values, a view.
std::vector<std::pair<TensorBox, at::Tensor>> runs_of(const StatePart& part, const TensorShape& shape) {
  const at::Tensor flat = part.values.view({-1});
  std::vector<std::pair<TensorBox, at::Tensor>> runs;
  std::int64_t at = 0;
  for (const TensorBox& box : boxes_of_run(shape, std::uint64_t(part.begin), std::uint64_t(flat.numel()))) {
    const std::vector<std::int64_t> sizes(box.extent.begin(), box.extent.end());
    runs.emplace_back(box, flat.narrow(0, at, std::int64_t(box.elements())).view(sizes));
    at += std::int64_t(box.elements());
  }
  return runs;
}

// A part is a run of elements of this rank's tensor, which is cut into boxes of that tensor, and these into boxes of
// the whole.
void add_placed(StateDict& state, const StatePart& part, const PlacedParameter& parameter) {
  const TensorKey key{part.parameter, part.state};
  if (part.shape.empty()) {  // one number for all of the parameter
    state.tensor(state_box(key, part.values, {}, {}));
    return;
  }
  const auto placed = placed_boxes(parameter.layout);
  const ParameterLayout& layout = parameter.layout;
  for (const auto& [run, values] : runs_of(part, shape_of(parameter.tensor))) {
    for (const PlacedBox& piece : placed) {
      const auto common = run.common(piece.here);
      if (!common) continue;
      TensorBox box = *common;
      at::Tensor part_of_run = values;
      for (std::size_t d = 0; d < box.begin.size(); ++d) {
        part_of_run = part_of_run.narrow(std::int64_t(d), std::int64_t(common->begin[d] - run.begin[d]),
                                         std::int64_t(common->extent[d]));
        box.begin[d] += piece.whole.begin[d] - piece.here.begin[d];
      }
      state.tensor(state_box(key, part_of_run, layout.shape, std::move(box)));
    }
  }
}

Status check_steps(const CheckpointReader& reader, const std::vector<StatePart>& parts) {
  for (const auto& part : parts) {
    if (part.state != "step") continue;
    const auto step = part.values.item<std::int64_t>();
    if (step < 0 || step > kMostSteps)
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{}: {} is {}, expected 0 to {}", reader.folder(),
                                         to_string(TensorKey{part.parameter, part.state}), step, kMostSteps)};
  }
  return {};
}

void check_steps_after_load(StateDict& state, const std::vector<StatePart>& parts) {
  if (state.loading() && !state.weights_only())
    state.after_load([parts](const CheckpointReader& saved) { return check_steps(saved, parts); });
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

void add_state(StateDict& state, const std::vector<StatePart>& parts) {
  for (const StatePart& part : parts)
    for (const auto& [box, values] : runs_of(part, whole_shape(part))) {
      StateBox made = state_box({part.parameter, part.state}, values, whole_shape(part), box);
      made.may_differ = part.may_differ;
      state.tensor(std::move(made));
    }
  check_steps_after_load(state, parts);
}

void add_state(StateDict& state, const std::vector<StatePart>& parts, std::span<const PlacedParameter> parameters) {
  std::map<std::string_view, const PlacedParameter*> by_name;
  for (const PlacedParameter& parameter : parameters) by_name.emplace(parameter.name, &parameter);
  for (const StatePart& part : parts) {
    const auto found = by_name.find(part.parameter);
    TUTTI_REQUIRE(found != by_name.end(), "the optimizer has state of ", part.parameter, ", which is not placed");
    add_placed(state, part, *found->second);
  }
  check_steps_after_load(state, parts);
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
