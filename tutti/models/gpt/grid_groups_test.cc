#include "tutti/models/gpt/grid_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/ranks.h"

namespace tutti::gpt {
namespace {

// Two tensor ranks and two stages, on two hosts that ranks are assigned to in turn.
struct Case {
  const char* name;
  int hosts;
  const char* order;  // of the grid: "pp" first puts stages on different hosts, "tp" first splits tensor groups
  bool sequence_parallel, split_messages;
  bool in_parts;
};

TEST(GridGroups, ActivationsGoInPartsWhereAPipelineSpansHosts) {
  const char* const stages_apart = "pp-tp-cp-ep-dp";
  for (const Case& one : {Case{"stages on two hosts", 2, stages_apart, false, true, true},
                          Case{"one host", 1, stages_apart, false, true, false},
                          Case{"tensor groups on two hosts", 2, "tp-cp-ep-dp-pp", false, true, false},
                          Case{"activations are parts", 2, stages_apart, true, true, false},
                          Case{"switched off", 2, stages_apart, false, false, false}}) {
    Options options;
    options.shape.layers = 2;
    options.shape.hidden = 16;
    options.shape.heads = options.shape.groups = 4;
    options.shape.head_size = 4;
    options.shape.ffn = 24;
    options.shape.vocabulary = 11;
    options.shape.sequence_length = options.shape.positions = 6;
    options.batches.micro_batch = 3;
    options.batches.global_batch = 0;
    options.parallel.grid.tensor = options.parallel.grid.pipeline = 2;
    options.parallel.grid.order = one.order;
    options.parallel.sequence_parallel = one.sequence_parallel;
    options.parallel.split_messages = one.split_messages;
    options = for_world(options, 4).or_throw();
    const auto outcomes = test::run_threads(
        4,
        [&](Group& world) {
          const GridGroups groups = make_grid_groups(world, options);
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
}  // namespace tutti::gpt
