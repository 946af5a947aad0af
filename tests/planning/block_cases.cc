// Prints small random chains of blocks as lines of JSON: the costs that the planner sees, and the plan that it chooses
// for them. highs_test.py solves the same choice as a mixed-integer program.
//
//   block_cases COUNT
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "tutti/planning/blocks.h"

namespace {

using tutti::BlockChain, tutti::BlockCost, tutti::BlockPlanOptions;
using Json = nlohmann::ordered_json;

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int whole(int least, int most) { return least + int(random_() % unsigned(most - least + 1)); }
  double real(double least, double most) { return least + (most - least) * double(random_()) / double(random_.max()); }
  bool one_of(int n) { return whole(1, n) == 1; }

 private:
  std::mt19937 random_;
};

BlockChain random_chain(Dice& dice, int blocks) {
  BlockChain chain{.blocks = {},
                   .sum_start = dice.real(0, 1e-3),
                   .sum_bandwidth = dice.one_of(4) ? 0 : dice.real(1e8, 1e10),
                   .message_start = dice.real(0, 5e-4),
                   .message_bandwidth = dice.one_of(4) ? 0 : dice.real(1e8, 1e10),
                   .step_seconds = dice.real(0, 2e-9),
                   .state_bytes = double(dice.whole(0, 2)),
                   .can_shard = !dice.one_of(4),
                   .least_rows = dice.whole(1, 2)};
  for (int i = 0; i < blocks; ++i) {
    const double bytes = dice.one_of(4) ? 0 : dice.real(1e4, 2e7);  // a quarter of the blocks have no parameters
    const double forward = dice.real(1e-5, 5e-3);
    chain.blocks.push_back({.forward = {.start = dice.real(0, 1e-3), .per_row = forward},
                            .backward = {.start = dice.real(0, 1e-3), .per_row = forward * dice.real(0.5, 3)},
                            .weight_bytes = bytes,
                            .trained_bytes = bytes,
                            .kept_bytes = dice.real(1e3, 1e6),
                            .output_bytes = dice.real(1e2, 1e6)});
  }
  if (blocks > 3 && dice.one_of(4)) {
    const int begin = dice.whole(0, blocks - 2);
    chain.together.push_back({begin, begin + 2});
  }
  return chain;
}

Json json_of(const tutti::RowTime& time) { return {{"start", time.start}, {"per_row", time.per_row}}; }

Json json_of(const BlockChain& chain, const BlockPlanOptions& options) {
  Json json = {{"ranks", options.ranks},
               {"batch", options.batch},
               {"memory", options.memory},
               {"sum_start", chain.sum_start},
               {"sum_bandwidth", chain.sum_bandwidth},
               {"message_start", chain.message_start},
               {"message_bandwidth", chain.message_bandwidth},
               {"step_seconds", chain.step_seconds},
               {"state_bytes", chain.state_bytes},
               {"can_shard", chain.can_shard},
               {"least_rows", chain.least_rows},
               {"together", Json::array()},
               {"blocks", Json::array()}};
  for (const tutti::LayerRange& range : chain.together) json["together"].push_back({range.begin, range.end});
  for (const BlockCost& block : chain.blocks)
    json["blocks"].push_back({{"forward", json_of(block.forward)},
                              {"backward", json_of(block.backward)},
                              {"weight_bytes", block.weight_bytes},
                              {"trained_bytes", block.trained_bytes},
                              {"kept_bytes", block.kept_bytes},
                              {"output_bytes", block.output_bytes}});
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 50;
  Dice dice(1);
  for (int number = 0; number < count; ++number) {
    constexpr int kRanks[] = {2, 3, 4, 4, 6};
    BlockPlanOptions options{.ranks = kRanks[dice.whole(0, 4)]};
    options.batch = options.ranks * dice.whole(1, options.ranks > 3 ? 1 : 2);
    const BlockChain chain = random_chain(dice, dice.whole(3, 10));
    if (!dice.one_of(3)) {  // between what the smallest plan and what the largest needs
      double least = 0, most = 0;
      for (const auto& plan : tutti::plan_blocks(chain, options).or_throw()) {
        least = least == 0 ? plan.bytes : std::min(least, plan.bytes);
        most = std::max(most, plan.bytes);
      }
      options.memory = least + dice.real(-0.05, 0.7) * (most - least);
    }
    Json json = json_of(chain, options);
    const auto plans = plan_blocks(chain, options);
    if (plans.ok()) {
      const tutti::RankedBlockPlan& best = plans->at(0);
      json["best"] = {{"plan", to_string(best.plan)}, {"seconds", best.seconds()}, {"bytes", best.bytes}};
    } else {
      json["refusal"] = plans.error().detail;
    }
    std::printf("%s\n", json.dump().c_str());
  }
  return 0;
}
