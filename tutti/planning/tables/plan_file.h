#pragma once
// A placement as text that people write, instead of the planner's:
//
//   { "ranks": 4,
//     "tables": {
//       "users":  {"sharding": "table-wise", "rank": 2},
//       "items":  {"sharding": "row-wise", "ranks": [0, 1, 3]},
//       "places": {"sharding": "column-wise", "parts": [{"rank": 0, "columns": [0, 48]}, {"rank": 1, "columns": [48,
//       64]}]}, "hours":  {"sharding": "replicated"} } }
//
// Tables are identified by the names of their TableSpecs, in any order, each once. "ranks" splits into even ranges.
// "parts" lists the ranges in any order: "rows" or "columns", from the first to one past the last.
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/planning/tables/placement.h"

namespace tutti {

// A placement on `ranks` ranks that passes check(). The error names the mistake and its position. Mistakes are: text
// that is not JSON, an unknown word, a table that the model or the plan lacks, a gap, an overlap, a rank out of range.
Result<TablePlacement> parse_plan(std::string_view text, std::span<const TableSpec> tables, int ranks);
// Text from which parse_plan() creates this placement.
std::string plan_text(const TablePlacement& placement, std::span<const TableSpec> tables);

}  // namespace tutti
