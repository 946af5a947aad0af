#include "bench/comparison/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "bench/comparison/program.h"
#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

constexpr Duration kPlotPatience = std::chrono::seconds(60);
// Ours first, the limit last. Told apart by colour-blind readers (Okabe and Ito), and by their marks in print.
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"};
constexpr int kMarks[] = {7, 5, 9, 13, 11};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

bool ends_in(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Status can_plot(const std::string& file) {
  if (!ends_in(file, ".svg") && !ends_in(file, ".png"))
    return Error{.code = Code::kUsage, .detail = "--plot needs a file that ends in .svg or .png, not '" + file + "'"};
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (std::error_code failed; !std::filesystem::is_directory(folder, failed))
    return Error{.code = Code::kUsage, .detail = "--plot: there is no folder " + folder.string()};
  if (!find_in_path("gnuplot"))
    return Error{
        .code = Code::kUsage, .detail = "--plot draws with gnuplot, which is not here", .hint = "Debian: gnuplot-nox"};
  return {};
}

std::string script_for(const Plot& plot, const std::string& file) {
  std::string script = ends_in(file, ".svg")
                           ? "set terminal svg size 860,540 font 'sans-serif,14' background 'white'\n"
                           : "set terminal pngcairo size 1290,810 font 'sans,16' background 'white'\n";
  std::set<std::size_t> sizes;
  for (const auto& series : plot.series)
    for (const auto& [bytes, us] : series.points) sizes.insert(bytes);
  std::string ticks;
  for (const std::size_t bytes : sizes)
    ticks += fmt::format("{}{} {}", ticks.empty() ? "" : ", ", quoted(bytes_text(bytes)), bytes);
  script += fmt::format("set output {}\nset title {} noenhanced\n", quoted(file), quoted(plot.title));
  script +=
      "set logscale xy\nset grid\nset key top left Left reverse samplen 3 noenhanced\nset border lw 1\n"
      "set xlabel 'vector on a rank'\nset ylabel 'time of a call in microseconds (less is better)'\n"
      "set format y '%g'\n";
  script += "set xtics (" + ticks + ")\n";
  if (!sizes.empty())
    script += fmt::format("set xrange [{}:{}]\n", double(*sizes.begin()) / 1.5, double(*sizes.rbegin()) * 1.5);
  std::string curves;
  std::size_t colour = 0;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const auto& series = plot.series[i];
    script += fmt::format("$series{} << end\n", i);
    for (const auto& [bytes, us] : series.points) script += fmt::format("{} {:.4f}\n", bytes, us);
    script += "end\n";
    std::string style = "lines lw 2 dt 2 lc rgb '#555555'";
    if (!series.is_limit) {
      const std::size_t which = colour++ % std::size(kColours);
      style = fmt::format("linespoints lw 2 pt {} ps 0.9 lc rgb '{}'", kMarks[which], kColours[which]);
    }
    curves += fmt::format("{}$series{} using 1:2 with {} title {}", curves.empty() ? "" : ", \\\n  ", i, style,
                          quoted(series.name));
  }
  return script + "plot " + curves + "\n";
}

Status draw(const Plot& plot, const std::string& file) {
  TUTTI_TRY(can_plot(file));
  const auto drawn = run_program({.path = *find_in_path("gnuplot"),
                                  .arguments = {"-"},
                                  .environment = clean_environment(),
                                  .input = script_for(plot, file)},
                                 Deadline::after(kPlotPatience));
  if (!drawn.ok()) return drawn.error();
  return {};
}

}  // namespace tutti::bench
