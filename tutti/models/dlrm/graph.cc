// The graph is small and always of one shape, a column of layers on each side of the interaction and a row of tables,
// so the SVG needs no layout program: a layer is a row, its nodes stand evenly.
#include "tutti/models/dlrm/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::dlrm {
namespace {

using Kind = GraphNode::Kind;

class Drawing {
 public:
  std::size_t add(GraphNode node) {
    for (auto input : node.inputs) node.layer = std::max(node.layer, nodes_[input].layer + 1);
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  std::size_t mlp(const char* name, const std::vector<std::int64_t>& sizes, bool sigmoid, std::size_t from) {
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      const char* activation = sigmoid && i + 2 == sizes.size() ? "sigmoid" : "ReLU";
      from = add({fmt::format("{} {}", name, i),
                  fmt::format("Linear {} -> {}, {}", sizes[i], sizes[i + 1], activation),
                  Kind::kLayer,
                  0,
                  {from}});
    }
    return from;
  }
  std::size_t feature(const Architecture& architecture, std::size_t i) {
    const auto& feature = architecture.features[i];
    const auto lookups =
        add({fmt::format("lookups {}", i), fmt::format("ids below {}", feature.rows), Kind::kInput, 0, {}});
    const auto table = [&](std::size_t number, const std::string& title) {
      const auto& shape = architecture.tables[number];
      return add({title, fmt::format("{} x {}, sum", shape.rows, shape.dim), Kind::kTable, 0, {lookups}});
    };
    switch (feature.kind) {
      case FeatureKind::kPlain:
        break;
      case FeatureKind::kProjected: {
        const auto narrow = table(feature.table, fmt::format("table {}", i));
        return add({fmt::format("project {}", i),
                    fmt::format("Linear {} -> {}", architecture.tables[feature.table].dim, architecture.dim),
                    Kind::kLayer,
                    0,
                    {narrow}});
      }
      case FeatureKind::kQuotientRemainder: {
        const auto quotient = table(feature.table, fmt::format("table {} (id / {})", i, feature.collisions));
        const auto remainder = table(feature.table + 1, fmt::format("table {} (id % {})", i, feature.collisions));
        constexpr const char* kWords[] = {"product", "sum", "side by side"};
        return add({fmt::format("combine {}", i),
                    kWords[int(architecture.qr_operation)],
                    Kind::kLayer,
                    0,
                    {quotient, remainder}});
      }
    }
    return table(feature.table, fmt::format("table {}", i));
  }
  std::vector<GraphNode> take() { return std::move(nodes_); }

 private:
  std::vector<GraphNode> nodes_;
};

const char* colour(Kind kind) {
  switch (kind) {
    case Kind::kInput:
      return "#f2f2f2";
    case Kind::kTable:
      return "#d5e8d4";
    case Kind::kLayer:
      return "#dae8fc";
    case Kind::kInteraction:
      return "#ffe6cc";
    case Kind::kOutput:
      return "#f8cecc";
  }
  return "";
}

}  // namespace

std::vector<GraphNode> compute_graph(const Architecture& architecture) {
  Drawing drawing;
  const auto dense =
      drawing.add({"dense features", fmt::format("batch x {}", architecture.dense_features()), Kind::kInput, 0, {}});
  std::vector<std::size_t> joined = {drawing.mlp("bottom", architecture.bottom, false, dense)};
  for (std::size_t i = 0; i < architecture.features.size(); ++i) joined.push_back(drawing.feature(architecture, i));
  const bool dot = architecture.interaction == Interaction::kDot;
  const auto interaction = drawing.add(
      {fmt::format("interaction: {}{}", dot ? "dot" : "cat", dot && architecture.itself ? ", with itself" : ""),
       fmt::format("{} x {} -> {}", architecture.vectors(), architecture.dim, architecture.interactions()),
       Kind::kInteraction, 0, joined});
  const auto last = drawing.mlp("top", architecture.top, true, interaction);
  drawing.add({"probability of a click", "batch x 1", Kind::kOutput, 0, {last}});
  return drawing.take();
}

std::string dot_text(const std::vector<GraphNode>& nodes) {
  std::string text = "digraph dlrm {\n  rankdir=BT;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    text += fmt::format("  n{} [label=\"{}\\n{}\", fillcolor=\"{}\"];\n", i, nodes[i].title, nodes[i].detail,
                        colour(nodes[i].kind));
    for (auto input : nodes[i].inputs) text += fmt::format("  n{} -> n{};\n", input, i);
  }
  return text + "}\n";
}

std::string svg_text(const std::vector<GraphNode>& nodes) {
  constexpr int kWidth = 190, kHeight = 42, kColumn = 206, kRow = 84, kMargin = 16;
  std::map<int, int> in_layer;
  int layers = 0, widest = 0;
  for (const auto& node : nodes) {
    widest = std::max(widest, ++in_layer[node.layer]);
    layers = std::max(layers, node.layer + 1);
  }
  const int width = 2 * kMargin + widest * kColumn, height = 2 * kMargin + layers * kRow - (kRow - kHeight);
  std::map<int, int> placed;
  std::vector<std::pair<double, int>> centres;  // x of the middle, y of the upper edge
  for (const auto& node : nodes) {
    const double step = double(width - 2 * kMargin) / in_layer[node.layer];
    centres.emplace_back(kMargin + step * (placed[node.layer]++ + 0.5), height - kMargin - kHeight - node.layer * kRow);
  }
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n",
      width, height);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (auto input : nodes[i].inputs) {
      text += fmt::format("<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"#888\"/>\n",
                          centres[input].first, centres[input].second, centres[i].first, centres[i].second + kHeight);
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto [x, y] = centres[i];
    const auto escaped = [](std::string words) {
      for (std::size_t at = 0; (at = words.find("->", at)) != std::string::npos;) words.replace(at, 2, "\xe2\x86\x92");
      return words;
    };
    text +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"#555\"/>\n",
                    x - kWidth / 2, y, kWidth, kHeight, colour(nodes[i].kind));
    text +=
        fmt::format("<text x=\"{0:.1f}\" y=\"{1}\">{2}</text><text x=\"{0:.1f}\" y=\"{3}\" fill=\"#444\">{4}</text>\n",
                    x, y + 17, nodes[i].title, y + 33, escaped(nodes[i].detail));
  }
  return text + "</svg>\n";
}

}  // namespace tutti::dlrm
