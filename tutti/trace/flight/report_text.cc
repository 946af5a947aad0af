// The text of a report: the verdict first, since most readers need no more; then, for each group in trouble, a table.
// Ranks whose records agree share a row, so the table stays short for a thousand ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/trace/flight/report.h"

namespace tutti::trace {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::array<std::string, 5>;

constexpr std::size_t kMostGroups = 20;  // with a table of their own
constexpr std::size_t kMostPrintedReasons = 4;

std::string title_of(const FlightReport::GroupPart& part) {
  std::string text = fmt::format("group {}, {} rank{} ({})", part.name, part.members.size(),
                                 part.members.size() == 1 ? "" : "s", ranks_text(part.members));
  if (part.completed_by_all == 0) return text + ": no collective completed by all";
  return text + ": all have completed " +
         (part.completed_call.empty() ? fmt::format("call #{}", part.completed_by_all)
                                      : numbered(part.completed_call, part.completed_by_all));
}

void add_table(std::string& text, const FlightReport::GroupPart& part) {
  std::vector<Cells> table = {{"ranks", "done", "now", "for", "called at"}};
  for (const FlightReport::Row& row : part.rows)
    table.push_back({ranks_text(row.ranks), row.completed ? fmt::format("#{}", row.completed) : "-", row.now,
                     row.seconds < 0 ? "" : seconds_text(row.seconds), row.site});
  std::array<std::size_t, 5> widths{};
  for (const Cells& cells : table)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  for (const Cells& cells : table) {
    std::string line = " ";
    for (std::size_t i = 0; i < cells.size(); ++i) line += fmt::format(" {:<{}} ", cells[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

bool is_interesting(const FlightReport::GroupPart& part) { return part.mismatch || part.awaited; }

}  // namespace

std::string numbered(const std::string& call, std::uint64_t sequence) {
  const std::size_t space = std::min(call.find(' '), call.size());
  return fmt::format("{} #{}{}", call.substr(0, space), sequence, call.substr(space));
}

std::string to_text(const FlightReport& report) {
  std::string text;
  for (const std::string& sentence : report.verdict) text += sentence + "\n";
  text += fmt::format("\njob {}, {} rank{}", report.job, report.world_size, report.world_size == 1 ? "" : "s");
  if (!report.without_record.empty()) text += "; no record from " + ranks_words(report.without_record);
  text += "; records written because of\n";
  for (std::size_t i = 0; i < std::min(report.reasons.size(), kMostPrintedReasons); ++i)
    text += "  " + report.reasons[i] + "\n";
  if (const std::size_t more = report.reasons.size() - std::min(report.reasons.size(), kMostPrintedReasons))
    text += fmt::format("  and {} more reason{}\n", more, more == 1 ? "" : "s");
  std::size_t shown = 0, quiet = 0;
  for (const FlightReport::GroupPart& part : report.groups) {
    const bool show = shown < kMostGroups && (is_interesting(part) || shown == 0);
    if (!show) {
      ++quiet;
      continue;
    }
    ++shown;
    text += "\n" + title_of(part) + "\n";
    add_table(text, part);
  }
  if (quiet) text += fmt::format("\n{} more group{} not shown (--json lists all)\n", quiet, quiet == 1 ? "" : "s");
  return text;
}

std::string to_json(const FlightReport& report) {
  Json groups = Json::array();
  for (const FlightReport::GroupPart& part : report.groups) {
    Json variants = Json::array(), rows = Json::array();
    for (const auto& v : part.variants) variants.push_back({{"call", v.call}, {"ranks", v.ranks}, {"site", v.site}});
    for (const auto& row : part.rows) {
      Json json = {{"ranks", row.ranks}, {"completed", row.completed}, {"now", row.now}, {"site", row.site}};
      if (row.seconds >= 0) json["seconds"] = row.seconds;
      rows.push_back(std::move(json));
    }
    Json json = {{"name", part.name},
                 {"members", part.members},
                 {"completed_by_all", {{"sequence", part.completed_by_all}, {"call", part.completed_call}}}};
    if (part.mismatch) json["mismatch"] = {{"sequence", part.mismatch}, {"calls", std::move(variants)}};
    if (part.awaited)
      json["awaited"] = {{"sequence", part.awaited},
                         {"call", part.awaited_call},
                         {"seconds", part.waited},
                         {"waiting", part.waiting},
                         {"completed", part.done},
                         {"missing", part.missing},
                         {"without_record", part.without_record}};
    json["rows"] = std::move(rows);
    groups.push_back(std::move(json));
  }
  const Json json = {
      {"job", report.job},          {"world_size", report.world_size},         {"stuck", report.stuck},
      {"verdict", report.verdict},  {"without_record", report.without_record}, {"reasons", report.reasons},
      {"groups", std::move(groups)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::trace
