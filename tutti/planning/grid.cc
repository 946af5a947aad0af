#include "tutti/planning/grid.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

const std::vector<std::string> kAxes = {"tp", "cp", "ep", "dp", "pp"};

std::vector<std::string> axes_of(std::string_view token, const char* what) {
  std::vector<std::string> names = split(std::string(token), '-');
  for (std::size_t i = 0; i < names.size(); ++i) {
    TUTTI_REQUIRE(std::find(kAxes.begin(), kAxes.end(), names[i]) != kAxes.end(), "grid: ", what, " \"",
                  std::string(token), "\" has \"", names[i], "\", expected some of ", join(kAxes, ", "),
                  " with - between");
    TUTTI_REQUIRE(
        std::find(names.begin(), names.begin() + std::ptrdiff_t(i), names[i]) == names.begin() + std::ptrdiff_t(i),
        "grid: ", what, " \"", std::string(token), "\" has \"", names[i], "\" twice");
  }
  return names;
}

std::string product_text(const GridOptions& options) {
  return detail::words("tensor ", options.tensor, " x pipeline ", options.pipeline, " x context ", options.context);
}

// The data-parallel size: the ranks divided by the sizes of the other axes.
int data_size(int world, const GridOptions& options) {
  TUTTI_REQUIRE(world >= 1, "grid: ", world, " ranks, expected 1 or more");
  for (const auto& [size, name] :
       {std::pair(options.tensor, "tensor"), {options.pipeline, "pipeline"}, {options.context, "context"}})
    TUTTI_REQUIRE(size >= 1, "grid: ", name, " parallel size ", size, ", expected 1 or more");
  const std::int64_t model = std::int64_t(options.tensor) * options.pipeline * options.context;
  TUTTI_REQUIRE(world % model == 0, "grid: ", world, " ranks cannot be laid out as ", product_text(options),
                " (= ", model, ") x data: ",
                world < model ? detail::words("start ", model, " ranks, or a multiple")
                              : detail::words("start ", world / model * model, " or ", (world / model + 1) * model,
                                              " ranks, or choose sizes whose product divides ", world));
  return int(world / model);
}

Mesh mesh_of(int data, const GridOptions& options) {
  std::vector<std::string> order = axes_of(options.order, "the order");
  const auto size_of = [&](const std::string& axis) {
    if (axis == "tp") return options.tensor;
    if (axis == "cp") return options.context;
    if (axis == "dp") return data;
    return axis == "pp" ? options.pipeline : 1;
  };
  for (const std::string& axis : kAxes) {
    if (std::find(order.begin(), order.end(), axis) != order.end()) continue;
    TUTTI_REQUIRE(size_of(axis) == 1, "grid: the order \"", options.order, "\" leaves out \"", axis,
                  "\", whose size is ", size_of(axis), ": only an axis of size 1 may be missing");
    order.push_back(axis);
  }
  std::vector<Mesh::Axis> axes;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) axes.push_back({*axis, size_of(*axis)});
  return Mesh(std::move(axes));
}

}  // namespace

Grid::Grid(int world, const GridOptions& options)
    : options_(options), data_(tutti::data_size(world, options)), mesh_(mesh_of(data_, options)) {}

std::vector<int> Grid::group_of(int rank, std::string_view token) const {
  return mesh_.group_of(rank, axes_of(token, "the token"));
}
std::vector<std::vector<int>> Grid::groups(std::string_view token) const {
  return mesh_.groups(axes_of(token, "the token"));
}
int Grid::group_index(int rank, std::string_view token) const {
  return mesh_.group_index(rank, axes_of(token, "the token"));
}

int Grid::on_stage(int rank, int stage) const {
  const int stages = options_.pipeline;
  return group_of(rank, "pp")[std::size_t((stage % stages + stages) % stages)];
}

std::vector<int> Grid::embedding_group(int rank) const {
  const int first = on_stage(rank, 0), last = on_stage(rank, -1);
  return first == last ? std::vector{first} : std::vector{first, last};
}

std::string Grid::to_string() const {
  std::vector<std::string> parts;
  for (auto axis = mesh_.axes().rbegin(); axis != mesh_.axes().rend(); ++axis)
    if (axis->size > 1) parts.push_back(axis->name + "=" + std::to_string(axis->size));
  return detail::words(join(parts, " x "), parts.empty() ? "" : " ", "(", size(), size() == 1 ? " rank)" : " ranks)");
}

}  // namespace tutti
