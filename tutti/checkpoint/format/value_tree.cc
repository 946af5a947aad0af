#include "tutti/checkpoint/format/value_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using TreeKind = ValueTree::Kind;

constexpr std::size_t kShortList = 12, kNamedMembers = 20;

// Names and strings come from files of others: what could play with a terminal is shown as its number.
std::string harmless(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    out += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out;
}

std::string in_one_line(const ValueTree& tree) {
  std::vector<std::string> texts;
  for (const ValueTree& member : tree.members) texts.push_back(harmless(member.text));
  const std::string inside = join(texts, ", ");
  return tree.kind == TreeKind::kTuple ? "(" + inside + ")" : "[" + inside + "]";
}

bool fits_in_one_line(const ValueTree& tree) {
  return tree.kind != TreeKind::kDict && tree.members.size() <= kShortList &&
         std::all_of(tree.members.begin(), tree.members.end(),
                     [](const ValueTree& member) { return member.kind == TreeKind::kLeaf; });
}

void write(const ValueTree& tree, std::size_t depth, std::size_t most, std::string& out) {
  for (std::size_t i = 0; i < tree.members.size(); ++i) {
    const std::string indent(2 * depth, ' ');
    if (i == most) {
      out += fmt::format("{}... and {} more\n", indent, tree.members.size() - most);
      return;
    }
    const ValueTree& member = tree.members[i];
    out += indent + harmless(member.name) + ":";
    if (member.kind == TreeKind::kLeaf) {
      out += " " + harmless(member.text) + "\n";
    } else if (member.members.empty()) {
      out += member.kind == TreeKind::kDict ? " {}\n" : " " + in_one_line(member) + "\n";
    } else if (fits_in_one_line(member)) {
      out += " " + in_one_line(member) + "\n";
    } else {
      out += "\n";
      write(member, depth + 1, most, out);
    }
  }
}

}  // namespace

std::string to_string(const CheckpointValue& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return "\"" + *text + "\"";
  if (const auto* const number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return fmt::format("{}", std::get<std::int64_t>(value));
}

ValueTree ValueTree::leaf(std::string name, const CheckpointValue& value) {
  return {.name = std::move(name), .kind = TreeKind::kLeaf, .text = to_string(value), .value = value, .members = {}};
}
ValueTree ValueTree::word(std::string name, std::string text) {
  return {.name = std::move(name), .kind = TreeKind::kLeaf, .text = std::move(text), .value = {}, .members = {}};
}
ValueTree ValueTree::dict(std::string name, const CheckpointValues& values) {
  ValueTree tree{.name = std::move(name), .kind = TreeKind::kDict, .text = {}, .value = {}, .members = {}};
  for (const auto& [key, value] : values) tree.members.push_back(leaf(key, value));
  return tree;
}

Result<const ValueTree*> find_value(const ValueTree& tree, std::string_view path) {
  const std::string_view whole = path;
  const ValueTree* at = &tree;
  while (!path.empty()) {
    const ValueTree* next = nullptr;  // the one with the longest name
    for (const ValueTree& member : at->members) {
      const bool begins =
          path.starts_with(member.name) && (path.size() == member.name.size() || path[member.name.size()] == '.');
      if (begins && (!next || member.name.size() > next->name.size())) next = &member;
    }
    if (!next) {
      std::vector<std::string> names;
      for (const ValueTree& member : at->members) names.push_back(harmless(member.name));
      const std::string first = harmless(path.substr(0, path.find('.')));
      const std::string near = did_you_mean(nearest(first, names));
      if (names.size() > kNamedMembers) names.resize(kNamedMembers), names.emplace_back("...");
      const std::string before = harmless(whole.substr(0, whole.size() - path.size()));
      const std::string place = before.empty() ? "" : fmt::format(" in {}", before.substr(0, before.size() - 1));
      return Error{.code = Code::kNotFound,
                   .detail = names.empty()
                                 ? fmt::format("there is no {}{}: that has no members", first, place)
                                 : fmt::format("there is no {}{}; there is {}", first, place, join(names, ", ")),
                   .hint = near};
    }
    path.remove_prefix(std::min(path.size(), next->name.size() + 1));
    at = next;
  }
  return at;
}

std::string tree_text(const ValueTree& tree, std::size_t most_members) {
  if (tree.kind == TreeKind::kLeaf) return harmless(tree.text) + "\n";
  if (fits_in_one_line(tree)) return in_one_line(tree) + "\n";
  std::string out;
  write(tree, 0, most_members, out);
  return out;
}

}  // namespace tutti
