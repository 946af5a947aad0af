#pragma once
// `tutti bench --peers` and `--plot`: one operation against the peers, or the whole table of targets.
#include <string>
#include <vector>

#include "bench/comparison/entrants.h"
#include "bench/comparison/plot.h"
#include "bench/comparison/targets.h"

namespace tutti::bench {

struct CompareOptions {
  std::vector<std::string> rivals;  // keys
  bool all_must_be_here =
      false;  // the user named them; else those that are not installed are left out, with a sentence
  int turns = 5;
  bool json = false;
  std::string plot;  // file; empty: none
};

// One operation on several sizes: a table of times, ratios and targets, a verdict, a plot. Exit code.
Result<int> compare_operation(const Task& task, const CompareOptions& options);

// All targets whose line holds `only` ("": all): a line each, met or not. Exit code: 0 all that were measured are met,
// 1 not.
Result<int> compare_targets(const Method& method, const std::string& only, const CompareOptions& options);

// What these print.
std::string operation_table(const Task& task, const std::vector<Entrant>& rivals, const Turns& turns);
std::string operation_verdict(const Task& task, const std::vector<Entrant>& rivals, const Turns& turns);
std::string operation_lines(const Task& task, const std::vector<Entrant>& entrants, const Turns& turns);  // JSON
Plot plot_of(const Task& task, const std::vector<Entrant>& entrants, const Turns& turns);
std::string target_line(const Target& target, const Judgement& judgement);
std::string target_json(const Target& target, const Judgement& judgement);

}  // namespace tutti::bench
