#pragma once
// cluster.toml: a cluster as a file. docs/reference/formats.md describes its keys, which carry their units.
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/planning/training/cluster.h"

namespace tutti {

// `file` is the name in errors, which begin with it and the line: "cluster.toml:7: ...". kInvalidArgument: the text is
// no TOML, a key is not known, a value makes no sense, or what every plan needs is missing: the memory of a device, the
// bandwidth of a link that the devices use, or the rate of matrix products.
Result<Cluster> parse_cluster(std::string_view text, const std::string& file);
Result<Cluster> read_cluster(const std::string& path);

// The file of a cluster. Each of `comments` is a line above it. Figures have at most 12 digits, so parse_cluster()
// reads what cluster_text() writes, and writing it again gives the same text.
std::string cluster_text(const Cluster& cluster, std::span<const std::string> comments = {});

}  // namespace tutti
