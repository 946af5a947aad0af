#include "tutti/planning/training/run_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::planning {
namespace {

constexpr const char* kSeconds = "step_s";
constexpr const char* kMilliseconds = "step_ms";

using Cells = std::vector<std::string>;

bool has(const Cells& cells, const std::string& cell) {
  return std::find(cells.begin(), cells.end(), cell) != cells.end();
}

Status check_columns(const Cells& cells, const Cells& known) {
  if (cells.size() == 1 && cells[0].find_first_of(";\t") != std::string::npos)
    return invalid_argument("cells are separated by commas, and there are none");
  for (const std::string& column : cells)
    if (std::count(cells.begin(), cells.end(), column) > 1)
      return invalid_argument("there are two columns '" + column + "'");
  for (const std::string& column : cells)
    if (!has(known, column))
      return invalid_argument("there is no column '" + column + "'",
                              did_you_mean(nearest(column, known), "known: " + join(known, ", ")));
  if (has(cells, kSeconds) == has(cells, kMilliseconds))
    return invalid_argument("one column must be the measured time", "step_s in seconds, or step_ms");
  return {};
}

Result<double> seconds_in_cell(const std::string& column, const std::string& cell) {
  if (cell == "failed") return 0.0;
  const auto time = parse_double(cell);
  if (!time || *time <= 0)
    return invalid_argument(fmt::format("{} needs a time above 0 or 'failed', not '{}'", column, cell));
  return column == kMilliseconds ? *time / 1e3 : *time;
}

Status read_run(const Cells& columns, const Cells& cells, const RunTable& table) {
  if (cells.size() != columns.size())
    return invalid_argument(fmt::format("{} cells, expected {}", cells.size(), columns.size()));
  double seconds = 0;
  table.begin();
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (columns[i] == kSeconds || columns[i] == kMilliseconds)
      seconds = TUTTI_TRY(seconds_in_cell(columns[i], cells[i]));
    else
      TUTTI_TRY(table.set(columns[i], cells[i]));
  return table.end(seconds);
}

}  // namespace

Status read_run_table(std::string_view text, const std::string& file, const RunTable& table) {
  Cells known = table.columns, columns;
  known.insert(known.end(), {kSeconds, kMilliseconds});
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of tables that spreadsheets write
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  int number = 0, runs = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string_view trimmed = trim(line);
    if (trimmed.empty() || trimmed.front() == '#') continue;
    Cells cells;
    for (const std::string& cell : split(trimmed, ',')) cells.emplace_back(trim(cell));
    const bool is_header = columns.empty();
    const Status status = is_header ? check_columns(cells, known) : read_run(columns, cells, table);
    if (!status.ok())
      return invalid_argument(fmt::format("{}:{}: {}", file, number, status.error().detail), status.error().hint);
    if (is_header)
      columns = cells;
    else
      ++runs;
  }
  return runs > 0 ? Status() : invalid_argument(file + ": there are no runs");
}

Result<int> size_in_cell(const std::string& column, const std::string& cell) {
  const auto number = parse_int(cell);
  if (!number || *number < 1 || *number > 1 << 30)
    return invalid_argument(fmt::format("{} needs a whole number above 0, not '{}'", column, cell));
  return int(*number);
}

}  // namespace tutti::planning
