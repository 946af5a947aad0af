// One operation against the peers: how it is printed and drawn.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/comparison/compare.h"
#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

Setting setting_of(const Task& task) {
  return {.ranks = task.ranks,
          .private_memory = task.private_memory,
          .rewrite = task.method.rewrite,
          .two_hosts = task.two_hosts,
          .cubic = task.two_hosts && task.congestion == "cubic"};
}

std::string size_text(const Item& item) { return item.bytes == 0 ? "" : bytes_text(item.bytes); }

struct Cell {
  std::string us, ratio, target;
};

Cell cell_of(const Task& task, const Entrant& rival, const Item& item, const Turns& turns) {
  Cell cell;
  const Spread us = turns.us(rival.key, item), ratio = turns.ratio(rival.key, kOurs, item);
  if (us.count == 0) return cell;
  cell.us = fmt::format("{:.2f}", us.median);
  cell.ratio = ratio_text(ratio);
  if (const auto wanted = target_for(setting_of(task), item, rival.key))
    cell.target = fmt::format("{}x {}", *wanted, ratio.median >= *wanted ? "met" : "NOT MET");
  return cell;
}

}  // namespace

std::string operation_table(const Task& task, const std::vector<Entrant>& rivals, const Turns& turns) {
  std::string text = fmt::format("{}, {}", task.items.at(0).op, to_string(setting_of(task)));
  for (const std::string& word : task.our_words) text += " " + word;
  text += rivals.empty() ? "\n" : "; ratio: the peer's time / ours, median (least-most) of the turns\n";
  text += fmt::format("{:>10}{:>13}{:>12}{:>12}{:>10}", "bytes", "tutti us", "least", "p99", "of limit");
  for (const Entrant& rival : rivals)
    text += fmt::format("{:>22}  {:<24}{:<13}", rival.name + " us", "ratio", "target");
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  for (const Item& item : task.items) {
    const Spread us = turns.us(kOurs, item), limit = turns.limit_us(kOurs, item);
    if (us.count == 0) continue;
    text += fmt::format("{:>10}{:>13.2f}{:>12.2f}{:>12.2f}{:>10}", size_text(item), us.median,
                        turns.us_min(kOurs, item), turns.p99_us(kOurs, item).median,
                        limit.count ? fmt::format("{:.0f} %", 100 * limit.median / us.median) : "");
    for (const Entrant& rival : rivals) {
      const Cell cell = cell_of(task, rival, item, turns);
      text += fmt::format("{:>22}  {:<24}{:<13}", cell.us, cell.ratio, cell.target);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string operation_verdict(const Task& task, const std::vector<Entrant>& rivals, const Turns& turns) {
  std::string text;
  for (const Entrant& rival : rivals) {
    int sizes = 0, ahead = 0, wanted = 0, met = 0;
    for (const Item& item : task.items) {
      const Spread ratio = turns.ratio(rival.key, kOurs, item);
      if (ratio.count == 0) continue;
      ++sizes, ahead += ratio.median > 1;
      if (const auto target = target_for(setting_of(task), item, rival.key)) ++wanted, met += ratio.median >= *target;
    }
    const std::string& op = task.items.at(0).op;
    if (sizes == 0) {
      text += fmt::format("verdict: {} has no {}\n", rival.name, op);
      continue;
    }
    text +=
        fmt::format("verdict: {}: ahead of {} at {} of {} size{}", op, rival.name, ahead, sizes, sizes == 1 ? "" : "s");
    if (wanted > 0) text += fmt::format("; {} of {} target{} met", met, wanted, wanted == 1 ? "" : "s");
    text += "\n";
  }
  return text;
}

std::string operation_lines(const Task& task, const std::vector<Entrant>& entrants, const Turns& turns) {
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  std::string text;
  for (const Item& item : task.items)
    for (const Entrant& entrant : entrants) {
      const Spread us = turns.us(entrant.key, item);
      if (us.count == 0) continue;
      nlohmann::ordered_json line = {{"peer", entrant.key},      {"op", item.op},
                                     {"ranks", task.ranks},      {"bytes", item.bytes},
                                     {"us", rounded(us.median)}, {"us_min", rounded(turns.us_min(entrant.key, item))},
                                     {"turns", us.count}};
      if (entrant.key == kOurs) {
        line["p99_us"] = rounded(turns.p99_us(kOurs, item).median);
        if (const Spread limit = turns.limit_us(kOurs, item); limit.count) line["limit_us"] = rounded(limit.median);
      } else {
        const Spread ratio = turns.ratio(entrant.key, kOurs, item);
        line["ratio"] = rounded(ratio.median), line["ratio_least"] = rounded(ratio.least);
        line["ratio_most"] = rounded(ratio.most);
        if (const auto wanted = target_for(setting_of(task), item, entrant.key))
          line["target"] = *wanted, line["met"] = ratio.median >= *wanted;
      }
      text += line.dump() + "\n";
    }
  return text;
}

Plot plot_of(const Task& task, const std::vector<Entrant>& entrants, const Turns& turns) {
  Plot plot{.title = task.items.at(0).op + ", " + to_string(setting_of(task))};
  for (const Entrant& entrant : entrants) {
    Plot::Series series{.name = entrant.name};
    for (const Item& item : task.items)
      if (const Spread us = turns.us(entrant.key, item); us.count) series.points.emplace_back(item.bytes, us.median);
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  Plot::Series limit{.name = task.two_hosts ? "limit: one stream of TCP" : "limit: memory (a += k b on all cores)",
                     .is_limit = true};
  for (const Item& item : task.items)
    if (const Spread us = turns.limit_us(kOurs, item); us.count) limit.points.emplace_back(item.bytes, us.median);
  if (!limit.points.empty()) plot.series.push_back(std::move(limit));
  return plot;
}

}  // namespace tutti::bench
