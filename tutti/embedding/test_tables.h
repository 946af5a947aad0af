#pragma once
// What the tests of ShardedTables share: tables, where they are placed, and lookups.
#include <cstdint>
#include <numeric>
#include <ostream>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/embedding/sharded_tables.h"

namespace tutti::test {

// Numbers that are a function of where they are used, and nothing else.
inline double noise(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + 1;
  for (int i = 0; i < 3; ++i) x = (x ^ x >> 31) * 0xd6e8feb86659fd93;
  return double(x >> 11) * 0x1p-53 - 0.5;
}

struct Lookups {
  std::vector<std::int64_t> offsets{0}, indices;
  operator LookupsView() const { return {offsets, indices}; }
};

// Few rows, so that they repeat, and some bags are empty.
inline Lookups make_lookups(const TableSpec& table, std::size_t t, int step, std::int64_t samples) {
  Lookups made;
  for (std::int64_t s = 0; s < samples; ++s) {
    const int size = int((noise(t, std::uint64_t(step), std::uint64_t(s)) + 0.5) * 5);
    for (int k = 0; k < size; ++k)
      made.indices.push_back(
          std::int64_t((noise(t + 100, std::uint64_t(step * 1000 + k), std::uint64_t(s)) + 0.5) * double(table.rows)));
    made.offsets.push_back(std::int64_t(made.indices.size()));
  }
  return made;
}

enum class Place { kWhole, kRows, kColumns, kReplicated, kMixed, kOnOneRank };
enum class World { kMemory, kNoMemory, kProcesses, kTcp };

struct Case {
  const char* name;
  int ranks;
  Place place = Place::kWhole;
  TableRule rule = TableRule::kSgd;
  RowWeights weights = RowWeights::kNone;
  World world = World::kMemory;
  TableExchange exchange = TableExchange::kAllToAll;
  WireFormat wire = WireFormat::kExact;
  double tolerance = 1e-12;
  std::int64_t samples = 13;
  bool in_file = false;
};
inline void PrintTo(const Case& value, std::ostream* out) { *out << value.name << value.ranks; }

inline std::vector<TableSpec> specs() {
  return {{"users", 40, 8}, {"items", 7, 16}, {"places", 64, 3}, {"hours", 24, 32}, {"one", 1, 1}};
}

inline TablePlacement placed(Place place, int ranks, const std::vector<TableSpec>& tables) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> backwards(all.rbegin(), all.rend());
  TablePlacement placement = place_by_count(tables, ranks);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto& table = placement.tables[t];
    switch (place) {
      case Place::kWhole:
        break;
      case Place::kRows:
        table = place_by_rows(tables[t], t % 2 ? all : backwards);
        break;
      case Place::kColumns:
        table = place_by_columns(tables[t], t % 2 ? all : backwards);
        break;
      case Place::kReplicated:
        table = place_everywhere(tables[t], ranks);
        break;
      case Place::kMixed:
        if (t == 0) table = place_by_rows(tables[t], std::vector<int>{ranks - 1, 0, ranks - 1});
        if (t == 1) table = place_everywhere(tables[t], ranks);
        if (t == 2) table = place_whole(tables[t], ranks - 1);
        if (t == 3) table = place_by_columns(tables[t], std::vector<int>{0, ranks - 1, 0});
        break;
      case Place::kOnOneRank:
        table = place_whole(tables[t], ranks - 1);
        break;
    }
  }
  return placement;
}

inline std::vector<Outcome> run(const Case& c, const RankBody& body) {
  if (c.world == World::kProcesses) return run_processes(c.ranks, body);
  if (c.world == World::kTcp) return run_processes(c.ranks, body, {.transport = "tcp"});
  return run_threads(c.ranks, body);
}

}  // namespace tutti::test
