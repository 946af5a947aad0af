#pragma once
// What tutti was written to reach against its peers: the table that `tutti bench --peers` prints as met or not.
#include <optional>
#include <string>
#include <vector>

#include "bench/comparison/entrants.h"
#include "bench/comparison/figures.h"

namespace tutti::bench {

// The circumstances of a target.
struct Setting {
  int ranks = 2;
  bool private_memory = false;
  bool rewrite = false;
  bool two_hosts = false;
  bool cubic = false;  // two hosts: those who do not ask for a congestion control get cubic
  auto operator<=>(const Setting&) const = default;
};
// "2 ranks, heap rewritten before every call"
std::string to_string(const Setting& setting);

struct Target {
  Setting setting;
  Item item;
  std::vector<std::string> rivals;  // their keys: against the better of them
  double wanted = 0;                // the rival's time over ours, at least; without rivals: our p99 in us, at most
};

const std::vector<Target>& targets();
// The target for an operation on a size against one rival, if the table has it.
std::optional<double> target_for(const Setting& setting, const Item& item, const std::string& rival);

struct Judgement {
  // Beyond the floor: not met, and not within reach of anybody who has this floor. Unknown: somebody was not measured.
  enum class Verdict { kMet, kNotMet, kBeyondFloor, kUnknown } verdict = Verdict::kUnknown;
  Spread ours_us, rival_us, ratio;
  double ratio_of_least = 0;  // of the least rounds of all turns: what other work on the machine disturbs least
  // The ratio that the floor would have, where there is one: the bare loop, or else the bytes that memory has to move.
  Spread floor_ratio;
};
Judgement judge(const Target& target, const Turns& turns);

// The tasks that measure what the targets ask for, one for each setting, in the order of the table.
struct Section {
  Setting setting;
  std::vector<Target> targets;
  Task task(const Method& method) const;
};
std::vector<Section> sections(const std::vector<Target>& all);

}  // namespace tutti::bench
