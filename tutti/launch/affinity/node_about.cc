#include "tutti/launch/affinity/node_about.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRuns = 256;    // of equal shares that a node tells of
constexpr std::size_t kLongestWord = 64;  // of a run: it goes into a file

std::vector<std::string> parse_shares(const json& runs, int ranks) {
  std::vector<std::string> shares;
  for (const auto& run : runs) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_string() || !run[1].is_number_integer()) return {};
    const auto count = run[1].get<std::int64_t>();
    if (count < 1 || count > ranks - int(shares.size())) return {};
    shares.insert(shares.end(), std::size_t(count), run[0].get<std::string>());
  }
  return shares;
}

bool is_word(const std::string& text) {
  return text.size() <= kLongestWord && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string encode(const NodeAbout& about) {
  auto runs = json::array();
  for (const std::string& text : about.shares) {
    if (!runs.empty() && runs.back()[0] == text) {
      runs.back()[1] = runs.back()[1].get<int>() + 1;
    } else {
      runs.push_back({text, 1});
    }
  }
  if (runs.size() > kMostRuns) runs.clear();
  return json{{"shares", runs}, {"run", about.run}}.dump();
}

NodeAbout parse_node_about(const std::string& text, int ranks) {
  NodeAbout about;
  const auto note = json::parse(text, nullptr, false);
  if (!note.is_object()) return about;
  if (const auto shares = note.find("shares"); shares != note.end() && shares->is_array())
    about.shares = parse_shares(*shares, ranks);
  if (const auto run = note.find("run"); run != note.end() && run->is_string() && is_word(run->get<std::string>()))
    about.run = run->get<std::string>();
  return about;
}

}  // namespace tutti
