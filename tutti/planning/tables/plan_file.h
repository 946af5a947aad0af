#pragma once
// A placement as text that people write, in place of the planner's:
//
//   { "ranks": 4,
//     "tables": {
//       "users":  {"sharding": "table-wise", "rank": 2},
//       "items":  {"sharding": "row-wise", "ranks": [0, 1, 3]},
//       "places": {"sharding": "column-wise", "parts": [{"rank": 0, "columns": [0, 48]}, {"rank": 1, "columns": [48,
//       64]}]}, "hours":  {"sharding": "replicated"} } }
//
// Tables by the names of their TableSpecs, in any order, each once. "ranks" cuts into even runs; "parts" says them, in
// any order: "rows" or "columns" from the first up to the one after the last.
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/planning/tables/placement.h"

namespace tutti {

// A placement that passes check(), on `ranks` ranks. The error says what is wrong and where: text that is not JSON, a
// word that is not known, a table that the model does not have or the plan leaves out, a gap, an overlap, a rank out of
// range.
Result<TablePlacement> parse_plan(std::string_view text, std::span<const TableSpec> tables, int ranks);
// The text that parse_plan() makes this placement of.
std::string plan_text(const TablePlacement& placement, std::span<const TableSpec> tables);

}  // namespace tutti
