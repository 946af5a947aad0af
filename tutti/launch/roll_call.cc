#include "tutti/launch/roll_call.h"

#include <string_view>

#include "tutti/base/text.h"
#include "tutti/launch/layout.h"

namespace tutti {
namespace {

constexpr int kMostExitCode = 255;

std::string list_text(const std::vector<int>& counts) {
  std::vector<std::string> words;
  for (const int count : counts) words.push_back(std::to_string(count));
  return join(words, ",");
}

std::optional<int> parse_count(std::string_view text) {
  const auto count = parse_int(text);
  return count && *count >= 1 && *count <= kMostRanksPerNode ? std::optional(int(*count)) : std::nullopt;
}

}  // namespace

std::string encode(const RollNote& note) {
  return std::to_string(note.ranks) + "\n" + list_text(note.listed) + "\n" + note.host;
}

std::optional<RollNote> parse_roll_note(const std::string& text) {
  const auto parts = split(text, '\n');
  if (parts.size() != 3) return {};
  const auto ranks = parse_count(parts[0]);
  if (!ranks) return {};
  RollNote note{.ranks = *ranks, .listed = {}, .host = parts[2]};
  if (!parts[1].empty()) {
    for (const std::string& word : split(parts[1], ',')) {
      const auto count = parse_count(word);
      if (!count) return {};
      note.listed.push_back(*count);
    }
  }
  return note;
}

Result<std::vector<RollNote>> read_roll(const std::vector<std::string>& texts) {
  std::vector<RollNote> notes;
  const RollNote* lister = nullptr;
  const auto node_text = [](std::size_t node) { return "node " + std::to_string(node); };
  for (std::size_t node = 0; node < texts.size(); ++node) {
    auto note = parse_roll_note(texts[node]);
    if (!note || (!note->listed.empty() && note->listed.size() != texts.size()))
      return Error{.code = Code::kMismatch,
                   .detail = node_text(node) + " runs another version of tutti",
                   .hint = "install the same version on all nodes"};
    notes.push_back(*std::move(note));
  }
  for (const RollNote& note : notes) {
    if (note.listed.empty()) continue;
    if (!lister) lister = &note;
    if (note.listed == lister->listed) continue;
    return Error{.code = Code::kMismatch,
                 .detail = node_text(std::size_t(lister - notes.data())) + " was given -n " +
                           list_text(lister->listed) + ", but " + node_text(std::size_t(&note - notes.data())) +
                           " -n " + list_text(note.listed)};
  }
  for (std::size_t node = 0; lister && node < notes.size(); ++node) {
    if (lister->listed[node] == notes[node].ranks) continue;
    return Error{.code = Code::kMismatch,
                 .detail = node_text(std::size_t(lister - notes.data())) + " was given -n " +
                           list_text(lister->listed) + ", but " + node_text(node) + " runs " +
                           std::to_string(notes[node].ranks) + " ranks"};
  }
  return notes;
}

std::string encode_end(const std::optional<Fault>& fault) {
  if (!fault) return "0\n";
  return std::to_string(fault->code) + (fault->report ? " report\n" : "\n") + fault->text;
}

std::optional<Fault> parse_end(const std::string& value) {
  const auto line = value.find('\n');
  const auto words = split(std::string_view(value).substr(0, line), ' ');
  const auto code = parse_int(words[0]);
  if (code == 0) return {};
  return Fault{.text = line == std::string::npos ? value : value.substr(line + 1),
               .code = code && *code > 0 && *code <= kMostExitCode ? int(*code) : 1,
               .report = words.size() > 1};
}

}  // namespace tutti
