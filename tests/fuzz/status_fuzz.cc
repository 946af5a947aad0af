// What agents of other nodes left in the store of how their ranks are doing, and what `tutti status` reads from an
// agent's socket and shows on a terminal.
#include <algorithm>

#include "tests/fuzz/targets.h"
#include "tutti/launch/affinity/rank_table.h"
#include "tutti/launch/monitor/node_status.h"

namespace tutti::fuzz {
namespace {

void check_table(const std::vector<launch::NodeStatus>& nodes) {
  for (const int width : {0, 40}) {
    for (const int lines : {0, 3}) {
      const std::string table = launch::status_table(nodes, lines, width);
      promise(nodes.empty() || table.ends_with('\n'), "a table ends with its last line");
      promise(std::none_of(table.begin(), table.end(), [](unsigned char c) { return c < ' ' && c != '\n'; }),
              "a table does nothing to a terminal");
    }
  }
}

}  // namespace

void status(Input input) {
  const auto what = take(input) % 3;
  const std::string text = text_of(input);
  if (what == 0) {
    const auto node = launch::parse_node_status(text);
    if (!node.ok()) return promise_sentence(node.error());
    promise(node->node >= 0 && node->node < node->nodes, "a node is one of the nodes");
    const std::string written = encode(*node);
    const auto again = launch::parse_node_status(written);
    promise(again.ok() && encode(*again) == written, "a status survives being written");
    check_table({*node});
  } else if (what == 1) {
    const auto nodes = launch::parse_answer(text);
    if (!nodes.ok()) return promise_sentence(nodes.error());
    check_table(*nodes);
    std::vector<std::string> parts;
    for (const launch::NodeStatus& node : *nodes) parts.push_back(encode(node));
    const auto again = launch::parse_answer(launch::encode_answer(parts));
    promise(again.ok() && again->size() == nodes->size(), "an answer survives being written");
  } else {
    const launch::NodeInfo about = launch::parse_node_info(text, 4);
    promise(about.shares.size() <= 4, "a node tells of no more ranks than it has");
    promise(about.run.find('/') == std::string::npos, "the word of a run is no path");
    promise(launch::parse_node_info(encode(about), 4) == about, "what a node tells survives being written");
  }
}

}  // namespace tutti::fuzz
