#pragma once
// Which layers a stage of a pipeline has: consecutive ones, all of them, each once. Mistakes throw Exception.
#include <span>
#include <vector>

namespace tutti {

struct LayerRange {
  int begin = 0, end = 0;  // end is not included
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

// As equal as can be: where `stages` does not divide the layers, the first ones have one more. (Megatron-LM refuses
// that.) At least one layer a stage.
std::vector<LayerRange> even_stages(int layers, int stages);
// By hand: so many layers for each stage, whose sum is `layers`. 0 is allowed for the first and the last stage, which
// have the embedding and the head besides.
std::vector<LayerRange> given_stages(int layers, std::span<const int> sizes);
// By cost (any unit, 0 or more, one a layer): the split whose dearest stage is cheapest; among these, that whose
// earlier stages are fuller. At least one layer a stage. O(stages layers^2).
std::vector<LayerRange> balanced_stages(std::span<const double> costs, int stages);

}  // namespace tutti
