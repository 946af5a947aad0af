#include "tutti/planning/stage_layers.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/schedule.h"

namespace tutti {
namespace {

void require_a_layer_each(int layers, int stages) {
  TUTTI_REQUIRE(stages >= 1, "pipeline: ", stages, " stages, expected 1 or more");
  TUTTI_REQUIRE(layers >= stages, "pipeline: ", layers, " layers are not enough for ", stages,
                " stages: each needs one at least, so choose at most ", layers, " stages (ranks x chunks)");
}

}  // namespace

std::vector<LayerRange> even_stages(int layers, int stages) {
  require_a_layer_each(layers, stages);
  std::vector<LayerRange> ranges;
  for (int stage = 0, begin = 0; stage < stages; ++stage) {
    const int size = layers / stages + (stage < layers % stages ? 1 : 0);
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  return ranges;
}

std::vector<LayerRange> given_stages(int layers, std::span<const int> sizes) {
  TUTTI_REQUIRE(!sizes.empty(), "pipeline: no stages were given");
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (std::size_t stage = 0; stage < sizes.size(); ++stage) {
    const bool at_end = stage == 0 || stage + 1 == sizes.size();
    TUTTI_REQUIRE(sizes[stage] >= (at_end ? 0 : 1), "pipeline: stage ", stage, " was given ", sizes[stage],
                  " layers, expected ", at_end ? "0 or more" : "1 or more: it would have no parameters");
    ranges.push_back({begin, begin + sizes[stage]});
    begin += sizes[stage];
  }
  TUTTI_REQUIRE(begin == layers, "pipeline: the stages were given ", begin, " layers in all, the model has ", layers);
  return ranges;
}

std::vector<LayerRange> balanced_stages(std::span<const double> costs, int stages) {
  const int layers = int(costs.size());
  require_a_layer_each(layers, stages);
  std::vector<double> before(costs.size() + 1);  // sum of the costs of all earlier layers
  for (int i = 0; i < layers; ++i) {
    TUTTI_REQUIRE(costs[i] >= 0 && costs[i] < std::numeric_limits<double>::infinity(), "pipeline: layer ", i,
                  " has a cost of ", costs[i], ", expected 0 or more");
    before[i + 1] = before[i] + costs[i];
  }
  // least[s][i]: the minimal cost of the most expensive stage when s stages hold the layers from i on. The first of
  // these stages then ends at ends[s][i].
  const double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<int>> ends(stages + 1, std::vector<int>(layers + 1, 0));
  least[0][layers] = 0;
  for (int s = 1; s <= stages; ++s)
    for (int i = 0; i <= layers - s; ++i)
      for (int end = layers - (s - 1); end > i; --end) {
        const double dearest = std::max(before[end] - before[i], least[s - 1][end]);
        if (dearest < least[s][i]) least[s][i] = dearest, ends[s][i] = end;
      }
  std::vector<LayerRange> ranges;
  for (int s = stages, begin = 0; s >= 1; --s) {
    const int end = ends[s][begin];
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::vector<StageLayers> stages_of_rank(const Schedule& schedule, std::span<const LayerRange> ranges, int rank) {
  const int stages = schedule.shape.stages();
  TUTTI_REQUIRE(int(ranges.size()) == stages, "pipeline: layers of ", ranges.size(), " stages, expected ", stages);
  std::vector<StageLayers> found;
  for (int chunk = 0; chunk < schedule.shape.chunks; ++chunk) {
    const int stage = schedule.stage_of(rank, chunk);
    found.push_back({ranges[std::size_t(stage)], stage == 0, stage + 1 == stages});
  }
  return found;
}

}  // namespace tutti
