#include "tutti/comm/mesh_groups.h"

#include <vector>

#include "tutti/base/text.h"

namespace tutti {

const Group& MeshGroups::along(std::string_view axes) const {
  const auto found = groups_.find(axes);
  if (found != groups_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, group] : groups_) known.push_back(name);
  throw Exception(
      invalid_argument("the mesh " + mesh_.to_string() + " has no group along \"" + std::string(axes) + "\"",
                       "it has " + join(known, ", ")));
}

Result<MeshGroups> split(const Group& world, const Mesh& mesh) {
  if (mesh.size() != world.size())
    return invalid_argument(detail::words("the mesh ", mesh.to_string(), " is for ", mesh.size(), " ranks, but group ",
                                          world.name(), " has ", world.size()));
  MeshGroups made(mesh);
  const std::size_t axes = mesh.axes().size();
  for (std::size_t chosen = 1; chosen < std::size_t(1) << axes; ++chosen) {
    std::vector<std::string> along;
    for (std::size_t a = 0; a < axes; ++a)
      if (chosen >> a & 1) along.push_back(mesh.axes()[a].name);
    const std::string name = join(along, "+");
    made.groups_[name] = along.size() == axes
                             ? world
                             : TUTTI_TRY(world.split(mesh.group_index(world.rank(), along), world.rank(), name));
  }
  return made;
}

}  // namespace tutti
