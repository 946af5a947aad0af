#pragma once
// A table of measured runs: lines of cells with commas between them, of which the first that is no comment (#) names
// the columns. What the columns mean is the caller's, but for the time of a step: step_s or step_ms.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::planning {

using SetCell = std::function<Status(const std::string& column, const std::string& cell)>;

struct RunTable {
  std::vector<std::string> columns;   // that may occur, besides step_s and step_ms
  std::function<void()> begin;        // a run
  SetCell set;                        // one of its cells, in one of `columns`
  std::function<Status(double)> end;  // the run, with the seconds of its step; 0: it failed
};

// kInvalidArgument, beginning with `file` and the line: unknown columns, wrong numbers of cells, times that are none,
// errors of `set` and `end`, and a table without runs.
Status read_run_table(std::string_view text, const std::string& file, const RunTable& table);

// A whole number from 1 to 2^30 in a cell.
Result<int> size_in_cell(const std::string& column, const std::string& cell);

}  // namespace tutti::planning
