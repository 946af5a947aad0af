#include "tutti/planning/tables/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Error refused_plan(std::string what, std::string hint = {}) {
  return invalid_argument("the plan of the tables " + std::move(what), std::move(hint));
}
Error refused_plan(const TableSpec& table, std::string what, std::string hint = {}) {
  return refused_plan(fmt::format("says of table {} {}", table.name, what), std::move(hint));
}

// Accepts only these words, so that a misspelt one is an error.
Status check_words(const Json& object, std::initializer_list<const char*> known, const std::string& where) {
  const std::vector<std::string> words(known.begin(), known.end());
  for (const auto& [word, value] : object.items())
    if (std::find(words.begin(), words.end(), word) == words.end())
      return refused_plan(fmt::format("has \"{}\" in {}, which is not known", word, where),
                          did_you_mean(nearest(word, words), "known: " + join(words, ", ")));
  return {};
}

std::optional<std::int64_t> whole_number(const Json& object, const char* word) {
  const auto found = object.find(word);
  if (found == object.end() || !found->is_number_integer()) return {};
  return found->get<std::int64_t>();
}

Result<int> rank_of(const Json& value, const TableSpec& table) {
  if (!value.is_number_integer()) return refused_plan(table, fmt::format("rank {}, which is no number", value.dump()));
  const auto rank = value.get<std::int64_t>();
  return int(std::clamp<std::int64_t>(rank, -1, 1 << 30));  // check() reports ranks out of range
}

// "rows": [begin, end]
Result<Slice> run_of(const Json& part, const char* word, const TableSpec& table) {
  const auto found = part.find(word);
  if (found == part.end() || !found->is_array() || found->size() != 2 || !(*found)[0].is_number_integer() ||
      !(*found)[1].is_number_integer())
    return refused_plan(table, fmt::format("a part {}", part.dump()),
                        fmt::format("\"{}\": [first, one after the last]", word));
  return Slice{(*found)[0].get<std::int64_t>(), (*found)[1].get<std::int64_t>()};
}

Result<TablePlacement::Table> parse_cut(const Json& entry, const TableSpec& table, TableSharding sharding) {
  const bool by_rows = sharding == TableSharding::kRowWise;
  const char* const along = by_rows ? "rows" : "columns";
  TUTTI_TRY(check_words(entry, {"sharding", "ranks", "parts"}, "table " + table.name));
  if (entry.contains("ranks") == entry.contains("parts"))
    return refused_plan(table, fmt::format("that it is {}, and needs one of \"ranks\" and \"parts\"", name(sharding)));
  if (const auto found = entry.find("ranks"); found != entry.end()) {
    if (!found->is_array() || found->empty()) return refused_plan(table, "\"ranks\", which is no list of ranks");
    std::vector<int> ranks;
    for (const Json& value : *found) ranks.push_back(TUTTI_TRY(rank_of(value, table)));
    const std::int64_t length = by_rows ? table.rows : table.dim;
    if (std::int64_t(ranks.size()) > length)
      return refused_plan(table, fmt::format("{} ranks for {} {}", ranks.size(), length, along));
    return by_rows ? place_by_rows(table, ranks) : place_by_columns(table, ranks);
  }
  const Json& parts = entry["parts"];
  if (!parts.is_array() || parts.empty()) return refused_plan(table, "\"parts\", which is no list of parts");
  TablePlacement::Table placed{sharding, {}};
  for (const Json& part : parts) {
    if (!part.is_object()) return refused_plan(table, fmt::format("a part {}", part.dump()));
    TUTTI_TRY(check_words(part, {"rank", along}, "a part of table " + table.name));
    if (!part.contains("rank")) return refused_plan(table, fmt::format("a part {} without a rank", part.dump()));
    TableShard shard{TUTTI_TRY(rank_of(part["rank"], table)), {0, table.rows}, {0, table.dim}};
    (by_rows ? shard.rows : shard.columns) = TUTTI_TRY(run_of(part, along, table));
    placed.shards.push_back(shard);
  }
  std::stable_sort(placed.shards.begin(), placed.shards.end(), [&](const TableShard& a, const TableShard& b) {
    return by_rows ? a.rows.begin < b.rows.begin : a.columns.begin < b.columns.begin;
  });
  return placed;
}

Result<TablePlacement::Table> parse_table(const Json& entry, const TableSpec& table, int ranks) {
  if (!entry.is_object() || !entry.contains("sharding") || !entry["sharding"].is_string())
    return refused_plan(table, "nothing of its \"sharding\"");
  const std::string word = entry["sharding"].get<std::string>();
  for (const TableSharding sharding : kTableShardings) {
    if (word != name(sharding)) continue;
    switch (sharding) {
      case TableSharding::kTableWise:
        TUTTI_TRY(check_words(entry, {"sharding", "rank"}, "table " + table.name));
        if (!entry.contains("rank")) return refused_plan(table, "that it is table-wise, but not on which \"rank\"");
        return place_whole(table, TUTTI_TRY(rank_of(entry["rank"], table)));
      case TableSharding::kReplicated:
        TUTTI_TRY(check_words(entry, {"sharding"}, "table " + table.name));
        return place_everywhere(table, ranks);
      case TableSharding::kRowWise:
      case TableSharding::kColumnWise:
        return parse_cut(entry, table, sharding);
    }
  }
  std::vector<std::string> known;
  for (const TableSharding sharding : kTableShardings) known.emplace_back(name(sharding));
  return refused_plan(table, fmt::format("sharding \"{}\", which is not known", word),
                      did_you_mean(nearest(word, known), "known: " + join(known, ", ")));
}

}  // namespace

Result<TablePlacement> parse_plan(std::string_view text, std::span<const TableSpec> tables, int ranks) {
  std::string twice;  // a key that an object has twice; JSON would keep the last one
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == Json::parse_event_t::key && !open.empty() && !open.back().insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  Json plan;
  try {
    plan = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& e) {
    return refused_plan(fmt::format("is not JSON, at byte {}", e.byte));
  }
  if (!twice.empty()) return refused_plan(fmt::format("has \"{}\" twice", twice));
  if (!plan.is_object()) return refused_plan("is no JSON object", "{\"ranks\": 4, \"tables\": {\"name\": {...}, ...}}");
  TUTTI_TRY(check_words(plan, {"ranks", "tables"}, "the plan"));
  const auto made_for = whole_number(plan, "ranks");
  if (!made_for) return refused_plan("does not say how many \"ranks\" it is for");
  if (*made_for != ranks) return refused_plan(fmt::format("is for {} ranks, and there are {}", *made_for, ranks));
  if (!plan.contains("tables") || !plan["tables"].is_object()) return refused_plan("has no \"tables\"");
  TablePlacement placement{ranks, std::vector<TablePlacement::Table>(tables.size())};
  std::vector<std::string> names;
  for (const TableSpec& table : tables) names.push_back(table.name);
  for (const auto& [word, entry] : plan["tables"].items()) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end())
      return refused_plan(fmt::format("places table {}, which the model does not have", word),
                          did_you_mean(nearest(word, names)));
    const std::size_t t = std::size_t(found - names.begin());
    placement.tables[t] = TUTTI_TRY(parse_table(entry, tables[t], ranks));
  }
  for (std::size_t t = 0; t < tables.size(); ++t)
    if (placement.tables[t].shards.empty()) return refused_plan(fmt::format("leaves out table {}", tables[t].name));
  TUTTI_TRY(check(placement, tables));
  return placement;
}

std::string plan_text(const TablePlacement& placement, std::span<const TableSpec> tables) {
  Json plan{{"ranks", placement.ranks}, {"tables", Json::object()}};
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TablePlacement::Table& placed = placement.tables[t];
    Json entry{{"sharding", name(placed.sharding)}};
    const bool by_rows = placed.sharding == TableSharding::kRowWise;
    if (placed.sharding == TableSharding::kTableWise) entry["rank"] = placed.shards.at(0).rank;
    if (by_rows || placed.sharding == TableSharding::kColumnWise)
      for (const TableShard& shard : placed.shards) {
        const Slice run = by_rows ? shard.rows : shard.columns;
        entry["parts"].push_back({{"rank", shard.rank}, {by_rows ? "rows" : "columns", {run.begin, run.end}}});
      }
    plan["tables"][tables[t].name] = std::move(entry);
  }
  return plan.dump(2) + "\n";
}

}  // namespace tutti
