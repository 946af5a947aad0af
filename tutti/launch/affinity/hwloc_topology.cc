#include <hwloc.h>

#include <cerrno>
#include <memory>

#include "tutti/launch/affinity/binding.h"

namespace tutti::launch {
namespace {

bool contains(const CoreMask& mask, unsigned cpu) {
  return cpu / 64 < mask.size() && (mask[cpu / 64] >> (cpu % 64) & 1) != 0;
}

int socket_of(hwloc_topology_t topology, hwloc_obj_t core) {
  const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, core);
  return package ? int(package->logical_index) : 0;
}

int numa_of(hwloc_obj_t core) {
  const int first = core->nodeset ? hwloc_bitmap_first(core->nodeset) : -1;
  return first < 0 ? 0 : first;
}

}  // namespace

Result<Topology> topology_from_hwloc(const CoreMask& allowed) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return system_error(errno, "hwloc could not start to read the topology of this host");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return system_error(errno, "hwloc could not read the topology of this host");
  Topology cores;
  const auto take = [&](hwloc_obj_t object) {
    Core core{.cpus = {}, .socket = socket_of(raw, object), .numa = numa_of(object)};
    unsigned cpu = 0;
    hwloc_bitmap_foreach_begin(cpu, object->cpuset) if (contains(allowed, cpu)) core.cpus.push_back(int(cpu));
    hwloc_bitmap_foreach_end();
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  };
  // Some virtual machines have hardware threads and no cores.
  const auto type = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(raw, type, object));) take(object);
  if (cores.empty()) return Error{.code = Code::kSystem, .detail = "hwloc sees no core that this process may run on"};
  return cores;
}

}  // namespace tutti::launch
