// The layout is that of PyTorch: columns two spaces apart, right-aligned, 12 wide (names as wide as the longest, up to
// 55), dashes above and below; shares are of the sum of all self times.
#include "tutti/trace/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti {
namespace {

constexpr std::size_t kWidth = 12;
constexpr std::size_t kMostName = 55;

std::string time_text(double us) {
  if (us >= 1e6) return fmt::format("{:.3f}s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3f}ms", us / 1e3);
  return fmt::format("{:.3f}us", us);
}

double microseconds_of(Duration duration) { return to_seconds(duration) * 1e6; }

std::string shortened(const std::string& text) {
  return text.size() <= kMostName ? text : text.substr(0, kMostName - 3) + "...";
}

// Totals of one name together, unless the details are to be told apart.
std::vector<RegionTotals> rows_of(const Trace& trace, const ProfileTableOptions& options) {
  std::map<std::pair<std::string, std::string>, RegionTotals> rows;
  for (const RegionTotals& totals : trace.totals) {
    if (totals.is_span) continue;
    const std::string detail = options.by_detail ? totals.detail : "";
    auto& row = rows[{totals.name, detail}];
    row.name = totals.name;
    row.detail = detail;
    row.calls += totals.calls;
    row.total += totals.total;
    row.self += totals.self;
  }
  std::vector<RegionTotals> sorted;
  for (auto& [key, row] : rows)
    if (row.calls > 0) sorted.push_back(std::move(row));
  const auto larger = [&](const RegionTotals& a, const RegionTotals& b) {
    switch (options.order) {
      case ProfileOrder::kSelfTime:
        return a.self > b.self;
      case ProfileOrder::kTotalTime:
        return a.total > b.total;
      case ProfileOrder::kCalls:
        return a.calls > b.calls;
      case ProfileOrder::kName:
        return false;  // as they are in the map
    }
    return false;
  };
  std::stable_sort(sorted.begin(), sorted.end(), larger);
  return sorted;
}

}  // namespace

std::string profile_table(const Trace& trace, const ProfileTableOptions& options) {
  const std::vector<RegionTotals> rows = rows_of(trace, options);
  Duration all{0};
  std::size_t name_width = 4, detail_width = kWidth;
  for (const RegionTotals& row : rows) {
    all += row.self;
    name_width = std::max(name_width, shortened(row.name).size());
    detail_width = std::max(detail_width, shortened(row.detail).size());
  }
  std::vector<std::size_t> widths = {name_width + 4, kWidth, kWidth, kWidth, kWidth, kWidth, kWidth};
  if (options.by_detail) widths.push_back(detail_width + 4);

  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) out += fmt::format("{:>{}}  ", cells[i], widths[i]);
    out += '\n';
  };
  const auto dashes = [&] {
    std::vector<std::string> cells;
    for (const std::size_t width : widths) cells.emplace_back(width, '-');
    line(cells);
  };
  const auto share = [&](Duration part) {
    return fmt::format("{:.2f}%", all.count() > 0 ? 100.0 * double(part.count()) / double(all.count()) : 0.0);
  };

  dashes();
  std::vector<std::string> header = {"Name",      "Self CPU %",   "Self CPU",  "CPU total %",
                                     "CPU total", "CPU time avg", "# of Calls"};
  if (options.by_detail) header.emplace_back("Input Shapes");
  line(header);
  dashes();
  for (std::size_t i = 0; i < std::min(rows.size(), options.most_rows); ++i) {
    const RegionTotals& row = rows[i];
    std::vector<std::string> cells = {shortened(row.name),
                                      share(row.self),
                                      time_text(microseconds_of(row.self)),
                                      share(row.total),
                                      time_text(microseconds_of(row.total)),
                                      time_text(microseconds_of(row.total) / double(row.calls)),
                                      std::to_string(row.calls)};
    if (options.by_detail) cells.push_back(shortened(row.detail));
    line(cells);
  }
  dashes();
  out += fmt::format("Self CPU time total: {}\n", time_text(microseconds_of(all)));
  if (rows.size() > options.most_rows) out += fmt::format("({} more rows)\n", rows.size() - options.most_rows);
  return out;
}

}  // namespace tutti
