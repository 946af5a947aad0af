#pragma once
// What the layers of a model cost, measured, so that stages can be cut where they weigh alike:
//
//   const std::vector<double> costs = measured_layer_costs(world, layers, make_layer, first_input);
//   const std::vector<LayerRange> stages = balanced_stages(costs, pp.size() * chunks);   // planning/grid
#include <functional>
#include <vector>

#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti {

using LayerFunction = std::function<at::Tensor(const at::Tensor& input)>;

// Seconds of a forward and a backward of each layer, the same on every rank: the least of `repeats` runs after one that
// does not count, averaged over the ranks. make_layer(i) makes layer i, which is dropped before the next is made, so
// no rank needs memory for the whole model; the layers are measured on the output of the one before. Gradients that the
// layers leave in their parameters are the layers' own affair. Collective; throws Exception, on every rank if a layer
// throws on one.
std::vector<double> measured_layer_costs(const Group& group, int layers,
                                         const std::function<LayerFunction(int layer)>& make_layer,
                                         const at::Tensor& first_input, int repeats = 3);

}  // namespace tutti
