#include "tutti/planning/schedules/measured.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::string_view kLetters = "FBIW";

Error no_measured_pipeline(std::string what) {
  return Error{.code = Code::kCorrupt,
               .detail = "not a measured pipeline: " + std::move(what),
               .hint = "such a file is written by to_json() of planning/schedules/measured.h"};
}

// The inverse of to_string(): "F3", "B12c", "W0.27".
std::optional<Action> action_of(std::string_view text, int chunks) {
  Action action{};
  const std::size_t kind = text.empty() ? std::string_view::npos : kLetters.find(text[0]);
  if (kind == std::string_view::npos) return {};
  action.kind = ActionKind(kind);
  const char* const end = text.data() + text.size();
  const auto [after, failure] = std::from_chars(text.data() + 1, end, action.microbatch);
  if (failure != std::errc() || action.microbatch < 0) return {};
  const std::string_view rest(after, std::size_t(end - after));
  if (chunks > 1 && chunks <= 26 && rest.size() == 1) action.chunk = rest[0] - 'a';
  if (chunks > 26 && rest.size() > 1) std::from_chars(rest.data() + 1, end, action.chunk);
  const bool in_range = action.chunk >= 0 && action.chunk < chunks;
  return in_range && to_string(action, chunks) == text ? std::optional(action) : std::nullopt;
}

Result<TimedAction> timed_action(const Json& entry, int chunks, std::size_t rank) {
  const std::string where = "rank " + std::to_string(rank) + " has ";
  if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() || !entry[1].is_number() || !entry[2].is_number())
    return no_measured_pipeline(where + entry.dump().substr(0, 60) + ", expected [\"F0\", begin, end]");
  const auto action = action_of(entry[0].get<std::string>(), chunks);
  if (!action)
    return no_measured_pipeline(where + "an action " + entry[0].dump().substr(0, 60) +
                                ", expected one such as F0 or B3" + (chunks > 1 ? "a" : ""));
  const TimedAction timed{*action, entry[1].get<double>(), entry[2].get<double>()};
  if (!std::isfinite(timed.begin) || !std::isfinite(timed.end) || timed.begin > timed.end)
    return no_measured_pipeline(where + to_string(*action, chunks) + " end before it begins");
  return timed;
}

}  // namespace

std::string to_json(const MeasuredPipeline& measured) {
  const Timeline& timeline = measured.timeline;
  Json json = {{"tutti_pipeline", kFormat}, {"title", measured.title}, {"chunks", timeline.chunks}};
  json["ranks"] = Json::array();
  for (const auto& actions : timeline.ranks) {
    Json row = Json::array();
    for (const TimedAction& timed : actions)
      row.push_back({to_string(timed.action, timeline.chunks), timed.begin, timed.end});
    json["ranks"].push_back(std::move(row));
  }
  return json.dump() + "\n";
}

Result<MeasuredPipeline> measured_pipeline(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("tutti_pipeline"))
    return no_measured_pipeline("no JSON object with \"tutti_pipeline\"");
  if (json["tutti_pipeline"] != kFormat)
    return no_measured_pipeline("format " + json["tutti_pipeline"].dump() + ", expected 1");
  const auto title = json.find("title"), chunks = json.find("chunks"), ranks = json.find("ranks");
  if (title == json.end() || !title->is_string()) return no_measured_pipeline("no \"title\", a text");
  if (chunks == json.end() || !chunks->is_number_integer() || chunks->get<std::int64_t>() < 1 ||
      chunks->get<std::int64_t>() > 1 << 20)
    return no_measured_pipeline("no \"chunks\", a number from 1 on");
  if (ranks == json.end() || !ranks->is_array() || ranks->empty())
    return no_measured_pipeline("no \"ranks\", a list for each rank");
  MeasuredPipeline measured{.title = title->get<std::string>(), .timeline = {.chunks = chunks->get<int>()}};
  for (const Json& row : *ranks) {
    auto& actions = measured.timeline.ranks.emplace_back();
    const std::size_t rank = measured.timeline.ranks.size() - 1;
    if (!row.is_array()) return no_measured_pipeline("rank " + std::to_string(rank) + " has no list of actions");
    for (const Json& entry : row) actions.push_back(TUTTI_TRY(timed_action(entry, measured.timeline.chunks, rank)));
  }
  const double length = measured.timeline.length();
  if (length <= 0) return no_measured_pipeline("it has no time in it");
  if (!std::isfinite(length)) return no_measured_pipeline("its times are further apart than a number can say");
  return measured;
}

}  // namespace tutti
