#pragma once
// What `tutti plan` knows and says: algorithms of one verb, simulated on one layout and network.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/comm/plans/simulator/bound.h"
#include "tutti/comm/plans/simulator/simulator.h"

namespace tutti::cli {

struct PlanQuestion {
  comm::Scenario scenario;  // but for the plan
  comm::Hosts hosts;        // scenario.shape.hosts points here
  DType dtype;
  std::size_t bytes;  // of the whole vector on a rank: one part of whole elements each, where it is split
  std::size_t asked;  // what was asked for, not rounded
  std::vector<comm::Algorithm> algorithms;
  comm::Algorithm chosen;   // by the table
  std::optional<int> rank;  // whose steps are shown
  int steps = 12;           // at most
  PlanQuestion(const PlanQuestion&) = delete;
  PlanQuestion() = default;
};

struct PlanAnswer {
  comm::Algorithm algorithm;
  std::optional<comm::Outcome> outcome;
  std::string refusal;  // why there is no outcome
};

// Right, finished, or at least not possible to simulate: 0; else 1.
int exit_code_of(const std::vector<PlanAnswer>& answers);

std::string to_text(const PlanQuestion& question, const std::vector<PlanAnswer>& answers);
std::string to_json(const PlanQuestion& question, const std::vector<PlanAnswer>& answers);

}  // namespace tutti::cli
