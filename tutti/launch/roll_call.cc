#include "tutti/launch/roll_call.h"

#include <nlohmann/json.hpp>

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

std::string to_text(const nlohmann::json& json) {  // a host name need not be UTF-8
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A number from `least` to `most`; none: something else is there, or nothing.
std::optional<std::int64_t> number(const nlohmann::json& json, const char* name, std::int64_t least,
                                   std::int64_t most) {
  const auto at = json.find(name);
  if (at == json.end() || !at->is_number_integer()) return {};
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > std::uint64_t(most)) return {};
  const auto value = at->get<std::int64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

std::optional<std::string> word(const nlohmann::json& json, const char* name) {
  const auto at = json.find(name);
  return at != json.end() && at->is_string() ? std::optional(at->get<std::string>()) : std::nullopt;
}

}  // namespace

std::string encode(const RollNote& note) {
  return to_text({{"ranks", note.ranks},
                  {"listed", note.listed},
                  {"host", note.host},
                  {"address", note.address},
                  {"about", note.about},
                  {"pid", note.pid},
                  {"release", note.release}});
}

std::optional<RollNote> parse_roll_note(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  const auto ranks = number(json, "ranks", 1, kMostRanksPerNode);
  auto host = word(json, "host"), address = word(json, "address"), about = word(json, "about");
  const auto listed = json.find("listed");
  if (!ranks || !host || !address || !about || listed == json.end() || !listed->is_array()) return {};
  RollNote note{.ranks = int(*ranks),
                .listed = {},
                .host = *std::move(host),
                .address = *std::move(address),
                .about = *std::move(about),
                .pid = int(number(json, "pid", 1, INT32_MAX).value_or(0)),
                .release = word(json, "release").value_or("")};
  for (const auto& item : *listed) {
    const auto count = number({{"count", item}}, "count", 1, kMostRanksPerNode);
    if (!count) return {};
    note.listed.push_back(int(*count));
  }
  return note;
}

Status check_roll(const std::vector<RollNote>& notes) {
  const auto told = [&](const RollNote& note) {
    return "node " + std::to_string(&note - notes.data()) + " was given -n " + list_text(note.listed);
  };
  const auto mismatch = [](std::string detail) {
    return Error{.code = Code::kMismatch, .detail = std::move(detail), .hint = "give the same -n list to all nodes"};
  };
  const RollNote* lister = nullptr;
  for (const RollNote& note : notes) {
    if (note.listed.empty()) continue;
    if (!lister) lister = &note;
    if (note.listed != lister->listed)
      return mismatch(told(*lister) + ", but node " + std::to_string(&note - notes.data()) + " -n " +
                      list_text(note.listed));
  }
  if (!lister) return {};
  if (lister->listed.size() != notes.size())
    return mismatch(told(*lister) + ", but " + std::to_string(notes.size()) + " nodes take part");
  for (std::size_t node = 0; node < notes.size(); ++node) {
    if (lister->listed[node] != notes[node].ranks)
      return mismatch(told(*lister) + ", but node " + std::to_string(node) + " runs " +
                      std::to_string(notes[node].ranks) + " ranks");
  }
  return {};
}

std::string encode_end(const std::optional<Fault>& fault) {
  if (!fault) return "{}";
  return to_text({{"text", fault->text},
                  {"code", fault->code},
                  {"report", fault->report},
                  {"rank", fault->rank},
                  {"step", fault->step},
                  {"seconds", fault->seconds},
                  {"final", fault->final}});
}

std::optional<Fault> parse_end(const std::string& value) {
  const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Fault{.text = value};
  if (json.empty()) return {};
  return Fault{.text = word(json, "text").value_or(value),
               .code = int(number(json, "code", 1, kMostExitCode).value_or(1)),
               .report = json.contains("report") && json["report"] == true,
               .rank = int(number(json, "rank", 0, INT32_MAX).value_or(-1)),
               .step = number(json, "step", 0, INT64_MAX).value_or(-1),
               .seconds = json.contains("seconds") && json["seconds"].is_number() ? json["seconds"].get<double>() : 0,
               .final = json.contains("final") && json["final"] == true};
}

}  // namespace tutti
