#include "tutti/models/transformer/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/ranks.h"

namespace tutti {
namespace {

// Two tensor ranks and two stages, on two hosts that ranks are assigned to in turn.
struct Case {
  const char* name;
  int hosts;
  const char* order;  // of the grid: "pp" first puts stages on different hosts, "tp" first splits tensor groups
  bool sequence_parallel, split_messages;
  bool in_parts;
};

TEST(Parallel, ActivationsGoInPartsWhereAPipelineSpansHosts) {
  const char* const stages_apart = "pp-tp-cp-ep-dp";
  for (const Case& one : {Case{"stages on two hosts", 2, stages_apart, false, true, true},
                          Case{"one host", 1, stages_apart, false, true, false},
                          Case{"tensor groups on two hosts", 2, "tp-cp-ep-dp-pp", false, true, false},
                          Case{"activations are parts", 2, stages_apart, true, true, false},
                          Case{"switched off", 2, stages_apart, false, false, false}}) {
    const GridOptions grid{.tensor = 2, .pipeline = 2, .order = one.order};
    const ParallelLayout layout{.sequence_parallel = one.sequence_parallel, .split_messages = one.split_messages};
    const auto outcomes = test::run_threads(
        4,
        [&](Group& world) {
          const Parallel groups = make_parallel(world, grid, layout);
          test::check(bool(groups.message_parts) == one.in_parts, "in parts");
          if (one.in_parts)
            test::check(std::ranges::equal(groups.message_parts.global_ranks(), groups.tensor.global_ranks()),
                        "over the tensor group");
        },
        {.network = ModelledNetwork{.hosts = one.hosts, .between = {.latency = 1e-5, .bandwidth = 1e9}}});
    EXPECT_EQ(test::describe(outcomes), "") << one.name;
  }
}

}  // namespace
}  // namespace tutti
