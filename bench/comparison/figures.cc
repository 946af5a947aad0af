// Absolute times on a shared machine mean little; a ratio of two runs in the same minute means much. So a ratio is
// taken within a turn, and what is quoted is the median over the turns.
#include "bench/comparison/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::bench {

Result<PeerFigures> read_figures(std::string_view text) {
  PeerFigures figures;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty() || line[0] != '{') continue;
    try {
      const auto json = nlohmann::json::parse(line);
      if (json.value("wrong", 0) != 0)
        return Error{.code = Code::kCorrupt, .detail = "some results were wrong: " + line};
      const PeerFigure figure{.us = json.at("us").get<double>(),
                              .us_min = json.at("us_min").get<double>(),
                              .p99_us = json.value("p99_us", 0.0),
                              .limit_us = json.value("limit_us", 0.0),
                              .allocations = json.value("allocations", 0.0)};
      figures[{json.at("op").get<std::string>(), json.at("bytes").get<std::size_t>()}] = figure;
    } catch (const nlohmann::json::exception& error) {
      return Error{.code = Code::kCorrupt, .detail = "cannot read the figures in \"" + line + "\": " + error.what()};
    }
  }
  return figures;
}

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {.median = median(values), .least = *least, .most = *most, .count = int(values.size())};
}

std::string ratio_text(const Spread& spread) {
  if (spread.count == 0) return "";
  const int digits = spread.median < 10 ? 2 : spread.median < 100 ? 1 : 0;
  return fmt::format("{:.{}f}x ({:.{}f}-{:.{}f})", spread.median, digits, spread.least, digits, spread.most, digits);
}

Spread Turns::of(const std::string& key, const Item& item, double PeerFigure::*what) const {
  std::vector<double> values;
  if (const auto found = turns_.find(key); found != turns_.end())
    for (const PeerFigures& turn : found->second)
      if (const auto at = turn.find(item); at != turn.end() && at->second.*what > 0) values.push_back(at->second.*what);
  return spread_of(values);
}

Spread Turns::us(const std::string& key, const Item& item) const { return of(key, item, &PeerFigure::us); }
double Turns::us_min(const std::string& key, const Item& item) const {
  return of(key, item, &PeerFigure::us_min).least;
}
Spread Turns::p99_us(const std::string& key, const Item& item) const { return of(key, item, &PeerFigure::p99_us); }
Spread Turns::limit_us(const std::string& key, const Item& item) const { return of(key, item, &PeerFigure::limit_us); }

double Turns::most_allocations(const std::string& key) const {
  double most = 0;
  if (const auto found = turns_.find(key); found != turns_.end())
    for (const PeerFigures& turn : found->second)
      for (const auto& [item, figure] : turn) most = std::max(most, figure.allocations);
  return most;
}

Spread Turns::ratio(const std::string& rival, const std::string& ours, const Item& item) const {
  return ratio_to_best({rival}, ours, item);
}

Spread Turns::ratio_to_best(const std::vector<std::string>& rivals, const std::string& ours, const Item& item) const {
  const auto mine = turns_.find(ours);
  if (mine == turns_.end()) return {};
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < mine->second.size(); ++turn) {
    const auto own = mine->second[turn].find(item);
    double best = std::numeric_limits<double>::infinity();
    for (const std::string& rival : rivals) {
      const auto theirs = turns_.find(rival);
      if (theirs == turns_.end() || turn >= theirs->second.size()) continue;
      if (const auto at = theirs->second[turn].find(item); at != theirs->second[turn].end())
        best = std::min(best, at->second.us);
    }
    if (own != mine->second[turn].end() && own->second.us > 0 && best < std::numeric_limits<double>::infinity())
      ratios.push_back(best / own->second.us);
  }
  return spread_of(ratios);
}

}  // namespace tutti::bench
