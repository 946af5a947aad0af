// A load has two halves. The first only looks: what objects want to check, tensors, values. All ranks agree on its
// outcome, so that a checkpoint of another model changes nothing anywhere. The second reads.
#include "tutti/checkpoint/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/checkpoint/data_position.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/format/value_tree.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

const CheckpointValue* find_value(const CheckpointValues& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

}  // namespace

TensorBox box_of(const StateBox& box) {
  const bool none_given = box.box.begin.empty() && box.box.extent.empty();
  return none_given || elements_of(box.shape) == 0 ? TensorBox::whole(box.shape) : box.box;
}

std::uint64_t bytes_of(const StateBox& box) { return box_of(box).elements() * size_of(box.dtype); }

Status check(const StateBox& given) {
  const auto bad = [&](std::string what) {
    return invalid_argument(fmt::format("checkpoint: the tensor {} {}", to_string(given.key), what));
  };
  if (given.key.name.empty()) return invalid_argument("checkpoint: a tensor has an empty name");
  if (*safetensors_name(given.dtype) == '\0')
    return bad(fmt::format("is {}, which safetensors files do not know", name(given.dtype)));
  const auto elements = elements_of(given.shape);
  if (!elements || *elements > (std::uint64_t(1) << 62) / size_of(given.dtype))
    return bad(fmt::format("has the shape {}, which is too large", shape_text(given.shape)));
  const TensorBox box = box_of(given);
  if (box.begin.size() != box.extent.size() || !box.inside(given.shape))
    return bad(fmt::format("has the shape {}; the box {} is not inside", shape_text(given.shape),
                           box.begin.size() == box.extent.size() ? box_text(box) : shape_text(box.extent)));
  if (box.elements() == 0) return {};
  if ((given.data != nullptr) == bool(given.source)) return bad("needs either data or a source");
  const std::uint64_t row_bytes = box.row_elements() * size_of(given.dtype);
  if (given.row_stride != 0 && given.row_stride < row_bytes && box.row_count() > 1)
    return bad(fmt::format("has rows of {} bytes, but a stride of {}", row_bytes, given.row_stride));
  return {};
}

void StateDict::tensor(StateBox box) {
  box.key.name = prefix_ + box.key.name;
  boxes_.push_back(std::move(box));
}

void StateDict::optional_tensor(StateBox box) {
  box.key.name = prefix_ + box.key.name;
  optional_.push_back(std::move(box));
}

void StateDict::add_value(Value value) {
  (value.in_data ? facts_.data : facts_.values)[value.name] = value.now;
  values_.push_back(std::move(value));
}

void StateDict::data(const std::string& name, std::int64_t& variable, std::int64_t least) {
  add_value({.name = prefix_ + name,
             .now = variable,
             .in_data = true,
             .least = least,
             .assign = [&variable](const CheckpointValue& saved) { assign(saved, variable); }});
}

void StateDict::data(const std::string& name, std::uint64_t& variable) {
  add_value({.name = prefix_ + name,
             .now = std::int64_t(variable),
             .in_data = true,
             .assign = [&variable](const CheckpointValue& saved) { assign(saved, variable); }});
}

std::vector<StateBox> StateDict::boxes_to_load() const {
  auto wanted = counted_boxes();
  if (!weights_only()) wanted.insert(wanted.end(), optional_.begin(), optional_.end());
  return wanted;
}

std::vector<StateBox> StateDict::counted_boxes() const {
  std::vector<StateBox> counted;
  for (const StateBox& box : boxes_)
    if (!weights_only() || box.key.state.empty()) counted.push_back(box);
  return counted;
}

// A tensor is one too many where no rank has it: in a pipeline each has its own.
Status StateDict::check_tensors(const Group& group, const CheckpointReader& saved) const {
  std::vector<std::uint8_t> known;
  const auto wanted = boxes_to_load();
  std::vector<TensorKey> keys;
  for (const StateBox& box : wanted) keys.push_back(box.key);
  std::sort(keys.begin(), keys.end());
  for (const auto& [key, tensor] : saved.manifest().tensors)
    known.push_back(std::binary_search(keys.begin(), keys.end(), key));
  if (group && group.size() > 1 && !known.empty()) all_reduce(group, std::span(known), ReduceOp::kMax);
  TensorMatch match = saved.compare(counted_boxes());
  match.extra.clear();
  auto is_known = known.begin();
  for (const auto& [key, tensor] : saved.manifest().tensors)
    if (!*is_known++ && !others_allowed_ && !(weights_only() && !key.state.empty()))
      match.extra.push_back(to_string(key));
  return match.whole() ? Status() : of_another_model(saved, match);
}

// Of the same kind, or a whole number for a real one: that is how 2.0 may come back.
const CheckpointValue* StateDict::find_fitting(const CheckpointReader& saved, const Value& value) {
  const CheckpointValue* const found =
      find_value(value.in_data ? saved.facts().data : saved.facts().values, value.name);
  const bool fits = found && (found->index() == value.now.index() || (std::holds_alternative<double>(value.now) &&
                                                                      std::holds_alternative<std::int64_t>(*found)));
  return fits ? found : nullptr;
}

Status StateDict::check_values(const CheckpointReader& saved) const {
  if (weights_only()) return {};
  for (const Value& value : values_) {
    if (value.in_data) TUTTI_TRY(place_in_data(saved, value.name, value.least));
    if (value.in_data || value.optional || find_fitting(saved, value)) continue;
    const CheckpointValue* const found = find_value(saved.facts().values, value.name);
    return Error{
        .code = Code::kMismatch,
        .detail = fmt::format("the checkpoint {} has no value {} like the {} of this run: it is {}", saved.folder(),
                              value.name, to_string(value.now), found ? to_string(*found) : "not there"),
        .hint = "start with the program and the options that saved it"};
  }
  return {};
}

Status StateDict::read_all(const CheckpointReader& saved) const {
  const std::vector<StateBox> wanted = counted_boxes();
  std::unique_ptr<TensorStream> stream;  // one for the boxes of a tensor that follow each other
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const StateBox& box = wanted[i];
    if (bytes_of(box) == 0) continue;
    if (box.source) {
      TUTTI_REQUIRE(box.sink, "the state has no sink to load ", to_string(box.key), " by");
      TUTTI_TRY(saved.read(box.key, box_of(box), box.sink));
      continue;
    }
    if (!stream || i == 0 || wanted[i - 1].key != box.key) stream = TUTTI_TRY(saved.stream(box.key));
    TUTTI_TRY(stream->read(box_of(box), static_cast<std::byte*>(box.data), box.row_stride));
  }
  if (weights_only()) return {};
  for (const Value& value : values_)
    if (const CheckpointValue* const found = find_fitting(saved, value)) value.assign(*found);
  return {};
}

Status StateDict::load(const Group& group, const CheckpointReader& saved) {
  const auto all_of = [&saved](const std::vector<Action>& actions) -> Status {
    for (const Action& action : actions) TUTTI_TRY(action(saved));
    return {};
  };
  const auto caught = [](const auto& act) -> Status {  // an error of one rank must not keep it from the others
    try {
      return act();
    } catch (const Exception& error) {
      return error.error();
    }
  };
  TUTTI_TRY(agree(group, caught([&] { return all_of(checks_); })));
  Status fits = check_tensors(group, saved);
  if (fits.ok()) fits = check_values(saved);
  TUTTI_TRY(agree(group, fits));
  TUTTI_TRY(agree(group, caught([&]() -> Status {
                    TUTTI_TRY(read_all(saved));
                    return all_of(after_load_);
                  })));
  return {};
}

}  // namespace tutti
