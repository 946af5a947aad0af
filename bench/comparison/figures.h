#pragma once
// What a run of an entrant gave, and how the peers' figures compare with ours.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::bench {

// An operation on a size. Barriers have none.
struct Item {
  std::string op;
  std::size_t bytes = 0;
  auto operator<=>(const Item&) const = default;
};

struct PeerFigure {
  double us = 0, us_min = 0;  // as in the lines of `tutti bench --json`
  double p99_us = 0;          // these: ours only, else 0
  double limit_us = 0;
  double allocations = 0;
};
using PeerFigures = std::map<Item, PeerFigure>;

// Reads lines of JSON with the keys of `tutti bench --json`; other lines are passed over. A line with wrong results, or
// without its keys, is an error.
Result<PeerFigures> read_figures(std::string_view lines);

// Median and spread of several.
struct Spread {
  double median = 0, least = 0, most = 0;
  int count = 0;  // 0: nothing is known
};
Spread spread_of(const std::vector<double>& values);
// "4.1x (3.8-4.4)"
std::string ratio_text(const Spread& spread);

// What each entrant gave in each turn, by the entrant's key.
class Turns {
 public:
  void add(const std::string& key, PeerFigures figures) { turns_[key].push_back(std::move(figures)); }
  bool has(const std::string& key, const Item& item) const { return us(key, item).count > 0; }
  Spread us(const std::string& key, const Item& item) const;
  double us_min(const std::string& key, const Item& item) const;  // of all turns
  Spread p99_us(const std::string& key, const Item& item) const;
  Spread limit_us(const std::string& key, const Item& item) const;
  double most_allocations(const std::string& key) const;  // in a call, of all items and turns
  // The time of `rival` over ours, turn by turn: above 1 we are faster.
  Spread ratio(const std::string& rival, const std::string& ours, const Item& item) const;
  // The same against whichever of the rivals is faster in that turn.
  Spread ratio_to_best(const std::vector<std::string>& rivals, const std::string& ours, const Item& item) const;

 private:
  Spread of(const std::string& key, const Item& item, double PeerFigure::*what) const;
  std::map<std::string, std::vector<PeerFigures>> turns_;
};

}  // namespace tutti::bench
