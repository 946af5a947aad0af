#pragma once
// The layers of each pipeline stage: consecutive ranges that together hold every layer once. Mistakes throw Exception.
#include <compare>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

struct LayerRange {
  int begin = 0, end = 0;  // [begin, end)
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

// Layers that the first and the last stage are given, 0 or more, because they also have the embedding and the head. The
// other stages divide the rest. None: that stage is one of the others.
struct EndLayers {
  std::optional<int> first, last;
  bool is_even() const { return !first && !last; }
  auto operator<=>(const EndLayers&) const = default;
};

// Splits as evenly as possible. If `stages` does not divide the layers, the first stages have one more. (Megatron-LM
// rejects that.) At least one layer per stage.
std::vector<LayerRange> even_stages(int layers, int stages);
// Splits by hand: the number of layers of each stage; their sum must be `layers`. The first and the last stage may have
// 0 layers, because they also have the embedding and the head.
std::vector<LayerRange> given_stages(int layers, std::span<const int> sizes);
// Splits as evenly as the layers of the ends allow: at least one layer for each of the others.
std::vector<LayerRange> stages_with_ends(int layers, int stages, const EndLayers& ends);
// The layers of one of these stages, for arguments that stages_with_ends() takes.
int layers_of_stage(int layers, int stages, const EndLayers& ends, int stage);
// What a stage costs, in any unit: each of its layers, and whatever else it has.
struct StageCost {
  double layer = 1, more = 0;
  double of(int layers) const { return layer * layers + more; }
};
// The ends for which the most expensive stage is cheapest. Of equally good ends the simplest; none if an even split is
// as good. `middle`: of each of the other stages.
EndLayers balanced_ends(int layers, int stages, const StageCost& first, const StageCost& middle, const StageCost& last);
// Splits by cost (any unit, >= 0, one value per layer). Minimizes the cost of the most expensive stage; among equal
// splits it prefers fuller earlier stages. At least one layer per stage. O(stages layers^2).
std::vector<LayerRange> balanced_stages(std::span<const double> costs, int stages);

struct Schedule;

// A stage of a rank: the first one also has the embedding, the last one the head.
struct StageLayers {
  LayerRange layers;
  bool is_first = true, is_last = true;
};
// The stages of rank `rank` of a pipeline, by chunk; `ranges`: the layers of each stage of the schedule, in order.
std::vector<StageLayers> stages_of_rank(const Schedule& schedule, std::span<const LayerRange> ranges, int rank);

}  // namespace tutti
