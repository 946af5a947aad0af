#include "tutti/planning/stage_layers.h"

#include <algorithm>
#include <cmath>
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

std::vector<LayerRange> even_stages(int layers, int stages) { return stages_with_ends(layers, stages, {}); }

std::vector<LayerRange> stages_with_ends(int layers, int stages, const EndLayers& ends) {
  if (ends.is_even()) {
    require_a_layer_each(layers, stages);
  } else {
    TUTTI_REQUIRE(stages > 1, "pipeline: layers are given to the first or the last stage, and there is one stage");
    const int given = ends.first.value_or(0) + ends.last.value_or(0);
    const int others = stages - int(ends.first.has_value()) - int(ends.last.has_value());
    TUTTI_REQUIRE(given <= layers, "pipeline: the first and the last stage are given ", given,
                  " layers, and the model has ", layers);
    TUTTI_REQUIRE(layers - given >= others, "pipeline: the first and the last stage leave ", layers - given, " of ",
                  layers, " layers to the other ", others, " stages, expected one each or more");
    TUTTI_REQUIRE(others > 0 || given == layers, "pipeline: the two stages are given ", given,
                  " layers in all, and the model has ", layers);
  }
  std::vector<LayerRange> ranges;
  for (int stage = 0, begin = 0; stage < stages; ++stage) {
    const int size = layers_of_stage(layers, stages, ends, stage);
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  return ranges;
}

int layers_of_stage(int layers, int stages, const EndLayers& ends, int stage) {
  if (ends.first && stage == 0) return *ends.first;
  if (ends.last && stage == stages - 1) return *ends.last;
  const int others = stages - int(ends.first.has_value()) - int(ends.last.has_value());
  const int rest = layers - ends.first.value_or(0) - ends.last.value_or(0);
  return rest / others + (stage - int(ends.first.has_value()) < rest % others ? 1 : 0);
}

EndLayers balanced_ends(int layers, int stages, const StageCost& first, const StageCost& middle,
                        const StageCost& last) {
  constexpr double kAsGood = 1 + 1e-9;
  if (stages == 1 || layers < stages) return {};
  const int others = stages - 2;
  const auto of_middle = [&](int size) { return others > 0 ? middle.of(size) : 0.0; };
  const auto dearest = [&](const EndLayers& ends) {
    return std::max({first.of(layers_of_stage(layers, stages, ends, 0)),
                     of_middle(layers_of_stage(layers, stages, ends, 1)),
                     last.of(layers_of_stage(layers, stages, ends, stages - 1))});
  };
  // With at most `each` layers in a middle stage, the ends share what is left, so that they cost the same.
  double least = std::numeric_limits<double>::infinity();
  for (int each = others > 0 ? 1 : layers; each <= layers && of_middle(each) < least; ++each) {
    const int left = std::max(layers - others * each, 0);
    const double level =
        std::clamp((left * last.layer + last.more - first.more) / (first.layer + last.layer), 0.0, double(left));
    for (const int share : {int(std::floor(level)), int(std::ceil(level))})
      least = std::min(least, std::max({first.of(share), of_middle(each), last.of(left - share)}));
  }
  if (dearest({}) <= least * kAsGood) return {};
  // As many layers at the ends as cost no more, and at least one for each of the others.
  const auto most_of = [&](const StageCost& cost) {
    return std::clamp(int(std::floor((least * kAsGood - cost.more) / cost.layer)), 0, layers - others);
  };
  int at_first = most_of(first), at_last = most_of(last);
  while (at_first + at_last > layers - others) --(at_last > at_first ? at_last : at_first);
  for (const EndLayers& ends : {EndLayers{.first = {}, .last = at_last}, EndLayers{.first = at_first, .last = {}}}) {
    const int rest = layers - ends.first.value_or(0) - ends.last.value_or(0);
    if (rest >= stages - 1 && dearest(ends) <= least * kAsGood) return ends;
  }
  return {at_first, at_last};
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
