#include "tutti/comm/mesh_groups.h"

#include <algorithm>
#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

// The names of the axes in the bit mask `chosen`, in mesh order.
std::vector<std::string> axes_of(const Mesh& mesh, std::size_t chosen) {
  std::vector<std::string> along;
  for (std::size_t a = 0; a < mesh.axes().size(); ++a)
    if (chosen >> a & 1) along.push_back(mesh.axes()[a].name);
  return along;
}

// Checks that every name belongs to a group that will be created.
Status check_names(const Mesh& mesh, const Group& world, const AxisTimeouts& timeouts) {
  const std::size_t all = (std::size_t(1) << mesh.axes().size()) - 1;
  std::vector<std::string> known;
  for (std::size_t chosen = 1; chosen < all; ++chosen) known.push_back(join(axes_of(mesh, chosen), "+"));
  for (const auto& [name, timeout] : timeouts) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const bool is_world = name == join(axes_of(mesh, all), "+");
    return invalid_argument(
        "a timeout is given for \"" + name + "\", " +
            (is_world ? "which is group " + world.name() + " itself, which keeps its deadline"
                      : "but the mesh " + mesh.to_string() + " has no such group"),
        known.empty() ? "this mesh makes no other groups" : "groups that are made are " + join(known, ", "));
  }
  return {};
}

}  // namespace

const Group& MeshGroups::along(std::string_view axes) const {
  const auto names = split(axes, '+');
  std::vector<std::string> in_order;  // of the mesh
  for (const auto& axis : mesh_.axes())
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) in_order.push_back(axis.name);
  const auto found = in_order.size() == names.size() ? groups_.find(join(in_order, "+")) : groups_.end();
  if (found != groups_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, group] : groups_) known.push_back(name);
  throw Exception(
      invalid_argument("the mesh " + mesh_.to_string() + " has no group along \"" + std::string(axes) + "\"",
                       "it has " + join(known, ", ")));
}

Result<MeshGroups> split(const Group& world, const Mesh& mesh, const AxisTimeouts& timeouts) {
  if (mesh.size() != world.size())
    return invalid_argument(detail::words("the mesh ", mesh.to_string(), " is for ", mesh.size(), " ranks, but group ",
                                          world.name(), " has ", world.size()));
  TUTTI_TRY(check_names(mesh, world, timeouts));
  MeshGroups made(mesh);
  const std::size_t axes = mesh.axes().size();
  for (std::size_t chosen = 1; chosen < std::size_t(1) << axes; ++chosen) {
    const std::vector<std::string> along = axes_of(mesh, chosen);
    const std::string name = join(along, "+");
    const auto own = timeouts.find(name);
    made.groups_[name] = along.size() == axes
                             ? world
                             : TUTTI_TRY(world.split(mesh.group_index(world.rank(), along), world.rank(), name,
                                                     own == timeouts.end() ? Duration() : own->second));
  }
  return made;
}

}  // namespace tutti
