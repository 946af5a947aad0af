#pragma once
// The model as a picture: what flows into what, with shapes. Pure.
#include <string>
#include <vector>

#include "tutti/models/dlrm/architecture.h"

namespace tutti::dlrm {

struct GraphNode {
  enum class Kind { kInput, kTable, kLayer, kInteraction, kOutput };
  std::string title, detail;  // "bottom 0", "Linear 13 -> 512, ReLU"
  Kind kind = Kind::kLayer;
  int layer = 0;                    // inputs are in layer 0; every arrow goes up
  std::vector<std::size_t> inputs;  // nodes before this one
};

std::vector<GraphNode> compute_graph(const Architecture& architecture);
std::string dot_text(const std::vector<GraphNode>& nodes);  // for graphviz
std::string svg_text(const std::vector<GraphNode>& nodes);

}  // namespace tutti::dlrm
