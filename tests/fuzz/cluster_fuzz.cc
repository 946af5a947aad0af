// cluster.toml as somebody wrote it: what is taken survives being written, and has what every plan needs.
#include "tests/fuzz/targets.h"
#include "tutti/planning/training/cluster_file.h"

namespace tutti::fuzz {

void cluster(Input input) {
  const auto cluster = parse_cluster(text_of(input), "cluster.toml");
  if (!cluster.ok()) return promise_sentence(cluster.error());
  promise(cluster->devices() >= 1 && cluster->device.stream_bandwidth > 0, "there are devices, and they have a rate");
  for (const ClusterNodes& nodes : cluster->nodes) promise(nodes.memory > 0, "a device has memory");
  const std::string text = cluster_text(*cluster);
  const auto again = parse_cluster(text, "written");
  promise(again.ok() && cluster_text(*again) == text, "a cluster survives being written");
}

}  // namespace tutti::fuzz
