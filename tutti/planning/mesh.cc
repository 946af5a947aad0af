// A rank is a number in a mixed radix: rank = sum of coordinate * stride, where the stride of an axis is the product of
// the sizes after it. A group along some axes fixes the digits of all other axes. The group's index is the number that
// these digits form.
#include "tutti/planning/mesh.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)), strides_(axes_.size()) {
  for (std::size_t i = axes_.size(); i-- > 0;) {
    const Axis& axis = axes_[i];
    TUTTI_REQUIRE(!axis.name.empty(), "mesh: axis ", i, " has no name");
    TUTTI_REQUIRE(axis.size > 0, "mesh: axis \"", axis.name, "\" has size ", axis.size, ", expected 1 or more");
    for (std::size_t j = 0; j < i; ++j)
      TUTTI_REQUIRE(axes_[j].name != axis.name, "mesh: two axes are named \"", axis.name, "\"");
    strides_[i] = size_;
    const std::int64_t product = std::int64_t(size_) * axis.size;
    TUTTI_REQUIRE(product <= 1 << 24, "mesh: ", product, " ranks or more, expected at most ", 1 << 24);
    size_ = int(product);
  }
}

std::size_t Mesh::index_of(std::string_view axis) const {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  detail::fail_requirement("known axis",
                           detail::words("mesh ", to_string(), " has no axis \"", std::string(axis), "\""), {});
}

void Mesh::require_rank(int rank) const {
  TUTTI_REQUIRE(rank >= 0 && rank < size_, "mesh ", to_string(), ": rank ", rank, " is not among its ", size_,
                " ranks");
}

int Mesh::axis_size(std::string_view axis) const { return axes_[index_of(axis)].size; }
bool Mesh::has_axis(std::string_view axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& known) { return known.name == axis; });
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  require_rank(rank);
  const std::size_t i = index_of(axis);
  return rank / strides_[i] % axes_[i].size;
}

std::vector<int> Mesh::coordinates(int rank) const {
  require_rank(rank);
  std::vector<int> result;
  for (std::size_t i = 0; i < axes_.size(); ++i) result.push_back(rank / strides_[i] % axes_[i].size);
  return result;
}

int Mesh::rank_at(std::span<const int> coordinates) const {
  TUTTI_REQUIRE(coordinates.size() == axes_.size(), "mesh ", to_string(), ": ", coordinates.size(),
                " coordinates, expected ", axes_.size());
  int rank = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    TUTTI_REQUIRE(coordinates[i] >= 0 && coordinates[i] < axes_[i].size, "mesh ", to_string(), ": coordinate ",
                  coordinates[i], " along \"", axes_[i].name, "\"");
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

std::vector<int> Mesh::group_of(int rank, std::span<const std::string> along) const {
  require_rank(rank);
  std::vector<int> members{rank};
  std::vector<bool> used(axes_.size());
  for (const std::string& axis : along) {
    const std::size_t i = index_of(axis);
    TUTTI_REQUIRE(!used[i], "mesh ", to_string(), ": axis \"", axis, "\" is named twice");
    used[i] = true;
    std::vector<int> spread;
    for (const int member : members) {
      const int first = member - member / strides_[i] % axes_[i].size * strides_[i];
      for (int at = 0; at < axes_[i].size; ++at) spread.push_back(first + at * strides_[i]);
    }
    members = std::move(spread);
  }
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<int> Mesh::group_of(int rank, std::string_view axis) const {
  const std::string along[] = {std::string(axis)};
  return group_of(rank, along);
}

std::vector<std::vector<int>> Mesh::groups(std::span<const std::string> along) const {
  std::vector<std::vector<int>> result;
  for (int rank = 0; rank < size_; ++rank) {
    auto group = group_of(rank, along);
    if (group.front() == rank) result.push_back(std::move(group));
  }
  return result;
}

std::vector<std::vector<int>> Mesh::groups(std::string_view axis) const {
  const std::string along[] = {std::string(axis)};
  return groups(along);
}

int Mesh::group_index(int rank, std::span<const std::string> along) const {
  require_rank(rank);
  for (const std::string& axis : along) index_of(axis);
  int index = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (std::find(along.begin(), along.end(), axes_[i].name) != along.end()) continue;
    index = index * axes_[i].size + rank / strides_[i] % axes_[i].size;
  }
  return index;
}

std::string Mesh::to_string() const {
  std::vector<std::string> parts;
  for (const Axis& axis : axes_) parts.push_back(axis.name + "=" + std::to_string(axis.size));
  return join(parts, " x ");
}

}  // namespace tutti
