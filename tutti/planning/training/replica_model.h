#pragma once
// A model of which every rank has the whole: its layers as counts for each sample. Pure data: replica_plan.h makes
// seconds and bytes of it.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// A linear layer, or a convolution as the product that computes it, and the element-wise work behind it. All numbers
// are those of one sample.
struct ReplicaLayer {
  double rows = 1;                 // of the product: 1, or the pixels that a convolution computes
  double outputs = 0, inputs = 0;  // of the product; 0: no product
  double parameters = 0;
  double streamed = 0;             // numbers that element-wise work reads and writes in forward, and again in backward
  double kept = 0;                 // numbers that are kept from forward to backward
  bool has_input_gradient = true;  // false: the layer reads data
};

struct ReplicaModel {
  std::string name;  // "mlp:784-4096-10", "cnn"
  std::vector<ReplicaLayer> layers;
  double parameters() const;
};

// Linear layers of these sizes, from the inputs to the outputs, with ReLU between them.
ReplicaModel mlp_model(std::span<const std::int64_t> sizes);
// train_image's: "mlp" (784-4096-4096-10) and "cnn", and any "mlp:N-N-..". kInvalidArgument for other names, with the
// nearest, and for sizes that are no positive numbers.
Result<ReplicaModel> replica_model(const std::string& name);
// Whether `name` is for replica_model(): "cnn", "mlp", or begins with "mlp:".
bool is_replica_model(const std::string& name);

}  // namespace tutti
