// Sources. [D] is NVIDIA's data sheet of the device: peak without sparsity, memory, its bandwidth, NVLink. A data sheet
// counts NVLink in both directions, and this file in one. [T] is measured by vTrain (MICRO 2024), trace/a100 and
// trace/v100: all_reduce of 2, 4 and 8 devices. [N] is what NCCL's maintainers call normal:
// github.com/NVIDIA/nccl-tests issues 212 and 290. [A] is assumed.
//
// A100: 8 devices reduce 1 GiB in 8.19 ms [T]: 2 x 7/8 x 1 GiB / 8.19 ms is 229e9 bytes/s. 1 MiB takes 44, 51 and 93 us
// on 2, 4 and 8 devices [T]; without the time of the bytes that is 35 us and 2.5 us for each of the 2 (n - 1) messages.
// Of the line rate of a network card 0.8 fits the runs of vTrain on several nodes. [F]: fitted to the 24 runs of
// step_time_test.cc, whose mean error is 3 %.
#include "tutti/planning/training/cluster_presets.h"

#include "tutti/base/text.h"
#include "tutti/planning/training/cluster_file.h"
#include "tutti/planning/training/cluster_units.h"

namespace tutti {
namespace {

// DGX A100 with the 80 GB device, 8 cards of 200 Gbit/s.
Cluster a100_sxm() {
  return {.name = "a100-sxm",
          .nodes = {{.devices = 8, .memory = 80 * planning::units::kGiB}},
          .network = {.inside = {2.5 * planning::units::kMicrosecond, 229 * planning::units::kGigabyte,
                                 1 * planning::units::kMicrosecond},  // [T]
                      .between = {5 * planning::units::kMicrosecond, 0.8 * 25 * planning::units::kGigabyte,
                                  1 * planning::units::kMicrosecond},  // [A], vTrain's share
                      .cards = 8,
                      .start = 35 * planning::units::kMicrosecond},  // [T]
          .device = {.peak = 312 * planning::units::kTeraflop,       // [D]
                     .share = 0.725,                                 // [F], as the next three
                     .product_start = 18 * planning::units::kMicrosecond,
                     .stream_bandwidth = 1500 * planning::units::kGigabyte,  // [D] 2,039
                     .launch = 8 * planning::units::kMicrosecond}};
}

// DGX H100: 8 cards of 400 Gbit/s. A ring over NVLink reaches 370 of 450e9 bytes/s, a card 46 to 48 of 50 [N]. The
// times to start are those of the A100 [A]. Megatron Core's best published run has 489 TFLOP/s, so a product has 0.7
// [A].
Cluster h100_sxm() {
  Cluster cluster = a100_sxm();
  cluster.name = "h100-sxm";
  cluster.network.inside.bandwidth = 370 * planning::units::kGigabyte;
  cluster.network.between.bandwidth = 46 * planning::units::kGigabyte;
  cluster.device.peak = 989 * planning::units::kTeraflop;  // [D]
  cluster.device.share = 0.7;
  cluster.device.stream_bandwidth = 0.8 * 3350 * planning::units::kGigabyte;  // [D] 3,350, [A] 0.8
  return cluster;
}

// An H100 with other memory: 141e9 bytes at 4,800e9 bytes/s [D].
Cluster h200_sxm() {
  Cluster cluster = h100_sxm();
  cluster.name = "h200-sxm";
  cluster.nodes[0].memory = 141e9;
  cluster.device.stream_bandwidth = 0.8 * 4800 * planning::units::kGigabyte;
  return cluster;
}

// AWS p3.16xlarge: 8 V100 with 16 GiB, one card of 25 Gbit/s. 8 devices reduce 256 MiB in 3.53 ms, and 1 MiB in 80 us
// [T]: 133e9 bytes/s. TCP reaches 0.9 of the card, 30 us [A].
Cluster v100_p3() {
  return {.name = "v100-p3",
          .nodes = {{.devices = 8, .memory = 16 * planning::units::kGiB}},
          .network = {.inside = {2.5 * planning::units::kMicrosecond, 133 * planning::units::kGigabyte,
                                 1 * planning::units::kMicrosecond},
                      .between = {30 * planning::units::kMicrosecond, 0.9 * 3.125 * planning::units::kGigabyte,
                                  5 * planning::units::kMicrosecond},
                      .cards = 1,
                      .start = 30 * planning::units::kMicrosecond},
          .device = {.peak = 125 * planning::units::kTeraflop,  // [D]
                     .share = 0.7,                              // [A]
                     .product_start = 20 * planning::units::kMicrosecond,
                     .stream_bandwidth = 0.8 * 900 * planning::units::kGigabyte,  // [D] 900, [A] 0.8
                     .launch = 8 * planning::units::kMicrosecond}};
}

// A server with 8 ranks of one core each, 4 GiB a rank and a card of 10 Gbit/s. All figures are assumed: a core with
// AVX2 at 3 GHz has 32 operations a cycle, of which OpenBLAS reaches 0.85, and its share of the memory is 8e9 bytes/s.
Cluster cpu() {
  return {.name = "cpu",
          .nodes = {{.devices = 8, .memory = 4 * planning::units::kGiB, .cores = 8}},
          .network = {.inside = {1 * planning::units::kMicrosecond, 5 * planning::units::kGigabyte,
                                 0.2 * planning::units::kMicrosecond},
                      .between = {30 * planning::units::kMicrosecond, 0.9 * 1.25 * planning::units::kGigabyte,
                                  5 * planning::units::kMicrosecond},
                      .cards = 1,
                      .start = 2 * planning::units::kMicrosecond},
          .device = {.peak = 0.096 * planning::units::kTeraflop,
                     .share = 0.85,
                     .product_start = 2 * planning::units::kMicrosecond,
                     .stream_bandwidth = 8 * planning::units::kGigabyte,
                     .function = 1 * planning::units::kNanosecond,
                     .launch = 5 * planning::units::kMicrosecond}};
}

constexpr struct {
  const char* name;
  Cluster (*make)();
} kClusterPresets[] = {
    {"a100-sxm", a100_sxm}, {"h100-sxm", h100_sxm}, {"h200-sxm", h200_sxm}, {"v100-p3", v100_p3}, {"cpu", cpu}};

constexpr int kMostPresetNodes = 1 << 17;

}  // namespace

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const auto& preset : kClusterPresets) names.emplace_back(preset.name);
  return names;
}

Result<Cluster> cluster_preset(const std::string& name, int nodes) {
  if (nodes < 1 || nodes > kMostPresetNodes)
    return invalid_argument("a cluster of " + std::to_string(nodes) + " nodes, expected 1 to " +
                            std::to_string(kMostPresetNodes));
  for (const auto& preset : kClusterPresets) {
    if (name != preset.name) continue;
    Cluster cluster = preset.make();
    cluster.nodes[0].count = nodes;
    return cluster;
  }
  const std::vector<std::string> known = cluster_preset_names();
  return invalid_argument(
      "there is no cluster " + quoted_name(name),
      did_you_mean(nearest(name, known), "known: " + join(known, ", ") + "; a file needs a '.' or a '/' in its name"));
}

Result<Cluster> find_cluster(const std::string& given) {
  if (given.find_first_of("./") != std::string::npos) return read_cluster(given);
  const std::size_t colon = given.find(':');
  if (colon == std::string::npos) return cluster_preset(given);
  const auto nodes = parse_int(given.substr(colon + 1));
  if (!nodes || *nodes < 1 || *nodes > kMostPresetNodes)
    return invalid_argument("the cluster " + quoted_name(given) + " needs a number of nodes from 1 to " +
                                std::to_string(kMostPresetNodes) + " behind its ':'",
                            "for example: h100-sxm:16");
  return cluster_preset(given.substr(0, colon), int(*nodes));
}

}  // namespace tutti
