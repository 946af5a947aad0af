#include "tutti/planning/training/replica_model.h"

#include <fmt/format.h>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::int64_t kImageMlp[] = {784, 4096, 4096, 10};
constexpr std::int64_t kMostMlpSize = 1 << 24;

// A convolution with a kernel of 3 x 3 that computes `side` x `side` pixels, and ReLU.
ReplicaLayer convolution(double in, double out, double side, bool reads_data) {
  const double numbers = out * side * side;
  return {.rows = side * side,
          .outputs = out,
          .inputs = 9 * in,
          .parameters = out * (9 * in + 1),
          .streamed = 4 * numbers,  // bias and ReLU
          .kept = numbers,
          .has_input_gradient = !reads_data};
}

// Two convolutions, a maximum over 2 x 2 pixels, and two linear layers.
ReplicaModel cnn_model() {
  const double pooled = 64 * 12 * 12;
  ReplicaModel model{.name = "cnn", .layers = {convolution(1, 32, 26, true), convolution(32, 64, 24, false)}};
  model.layers[0].kept += 28 * 28;
  model.layers.push_back({.streamed = 4 * pooled + pooled, .kept = pooled + 2 * pooled});  // with places, in 64 bits
  const std::int64_t sizes[] = {64 * 12 * 12, 128, 10};
  for (ReplicaLayer& layer : mlp_model(sizes).layers) {
    layer.has_input_gradient = true;
    model.layers.push_back(layer);
  }
  model.layers[3].kept -= pooled;  // the input of the first linear layer is counted
  return model;
}

}  // namespace

double ReplicaModel::parameters() const {
  double sum = 0;
  for (const ReplicaLayer& layer : layers) sum += layer.parameters;
  return sum;
}

ReplicaModel mlp_model(std::span<const std::int64_t> sizes) {
  TUTTI_REQUIRE(sizes.size() >= 2, "planner: an MLP of ", sizes.size(), " sizes, expected inputs and outputs");
  ReplicaModel model{.name = fmt::format("mlp:{}", fmt::join(sizes, "-")), .layers = {}};
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const double inputs = double(sizes[i - 1]), outputs = double(sizes[i]);
    model.layers.push_back({.outputs = outputs,
                            .inputs = inputs,
                            .parameters = outputs * (inputs + 1),
                            .streamed = 4 * outputs,  // bias, and ReLU or the loss
                            .kept = inputs + (i + 1 == sizes.size() ? outputs : 0),
                            .has_input_gradient = i > 1});
  }
  return model;
}

bool is_replica_model(const std::string& name) { return name == "cnn" || name == "mlp" || name.starts_with("mlp:"); }

Result<ReplicaModel> replica_model(const std::string& name) {
  if (name == "cnn") return cnn_model();
  if (name == "mlp") {
    ReplicaModel model = mlp_model(kImageMlp);
    model.name = name;
    return model;
  }
  if (!name.starts_with("mlp:")) {
    const std::vector<std::string> known = {"cnn", "mlp"};
    return invalid_argument("there is no model " + quoted_name(name),
                            did_you_mean(nearest(name, known), "known: cnn, mlp, mlp:N-N-.."));
  }
  std::vector<std::int64_t> sizes;
  for (const std::string& part : split(name.substr(4), '-')) {
    const auto size = parse_int(part);
    if (!size || *size < 1 || *size > kMostMlpSize)
      return invalid_argument(fmt::format("the model '{}' has a size '{}', expected 1 to {}", name, part, kMostMlpSize),
                              "for example mlp:784-4096-10");
    sizes.push_back(*size);
  }
  if (sizes.size() < 2)
    return invalid_argument("the model '" + name + "' has one size, expected inputs and outputs",
                            "for example mlp:784-4096-10");
  return mlp_model(sizes);
}

}  // namespace tutti
