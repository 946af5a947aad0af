#pragma once
// The layers of each pipeline stage: consecutive ranges that together hold every layer once. Mistakes throw Exception.
#include <span>
#include <vector>

namespace tutti {

struct LayerRange {
  int begin = 0, end = 0;  // [begin, end)
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

// Splits as evenly as possible. If `stages` does not divide the layers, the first stages have one more. (Megatron-LM
// rejects that.) At least one layer per stage.
std::vector<LayerRange> even_stages(int layers, int stages);
// Splits by hand: the number of layers of each stage; their sum must be `layers`. The first and the last stage may have
// 0 layers, because they also have the embedding and the head.
std::vector<LayerRange> given_stages(int layers, std::span<const int> sizes);
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
