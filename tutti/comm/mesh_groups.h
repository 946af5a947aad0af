#pragma once
// The groups of a mesh: for every axis, and every combination of axes, the group that this rank belongs to.
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tutti/comm/group.h"
#include "tutti/planning/mesh.h"

namespace tutti {

// Deadlines of the groups' calls, by the name of the group: {{"tp", 30s}, {"dp+tp", 2min}}.
using AxisTimeouts = std::map<std::string, Duration, std::less<>>;

class MeshGroups {
 public:
  // Along one axis, "tp", or several joined by '+', "dp+tp", in any order. An unknown name throws; the message lists the
  // known names.
  const Group& along(std::string_view axes) const;
  const Mesh& mesh() const { return mesh_; }

 private:
  friend Result<MeshGroups> split(const Group& world, const Mesh& mesh, const AxisTimeouts& timeouts);
  explicit MeshGroups(Mesh mesh) : mesh_(std::move(mesh)) {}

  Mesh mesh_;
  std::map<std::string, Group, std::less<>> groups_;
};

// Every rank of `world` calls; mesh.size() must be its size. With n axes this makes 2^n - 1 groups; the one over all
// axes is the world itself, which keeps its deadline. Groups that `timeouts` does not name get the deadline of the
// world.
Result<MeshGroups> split(const Group& world, const Mesh& mesh, const AxisTimeouts& timeouts = {});

}  // namespace tutti
