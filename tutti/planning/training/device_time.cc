#include "tutti/planning/training/device_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tutti::planning {
namespace {

// Transfers and computations that overlap slow each other: by 1.1 to 1.3 in the measurements of Galvatron (Miao et al.
// 2022, arXiv:2211.13878). So a hidden transfer costs a part of its time. Ranks on CPUs transfer with the cores that
// compute, so little is hidden there; the figure is assumed.
constexpr double kHiddenCost = 0.2, kHiddenCostOnCores = 0.7;

// The rate of a product of these sizes: the mean of the measured rates of its kind, each weighted by the inverse square
// of its distance in logarithms of m, n and k. Zero if there is none.
double measured_rate(const DeviceRates& device, ProductKind kind, double m, double n, double k, int busy) {
  int nearest_busy = 0;
  for (const ProductTime& product : device.products)
    if (product.kind == kind && (nearest_busy == 0 || std::abs(product.busy - busy) < std::abs(nearest_busy - busy)))
      nearest_busy = product.busy;
  double weights = 0, logs = 0;
  for (const ProductTime& product : device.products) {
    if (product.kind != kind || product.busy != nearest_busy) continue;
    const double rate = 2.0 * product.m * product.n * product.k / product.seconds;
    const double x = std::log(product.m / m), y = std::log(product.n / n), z = std::log(product.k / k);
    const double distance = x * x + y * y + z * z;
    if (distance < 1e-12) return rate;
    const double weight = 1 / (distance * distance);
    weights += weight;
    logs += weight * std::log(rate);
  }
  return weights > 0 ? std::exp(logs / weights) : 0;
}

}  // namespace

double product_time(const DeviceRates& device, ProductKind kind, double m, double n, double k, double batch,
                    double element, int busy) {
  const double operations = 2 * m * n * k * batch;
  if (!device.products.empty())
    if (const double rate = measured_rate(device, kind, m, n, k, busy); rate > 0) return operations / rate;
  const double bytes = element * batch * (m * k + k * n + m * n);
  return std::max(operations / (device.peak * device.share), bytes / device.stream_bandwidth) + device.product_start;
}

double element_time(const DeviceRates& device, const ElementWork& work) {
  return work.bytes / device.stream_bandwidth + work.functions * device.function + work.calls * device.launch;
}

bool is_on_cores(const Cluster& cluster) {
  return std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                     [](const ClusterNodes& nodes) { return nodes.cores > 0; });
}

double slowness(const Cluster& cluster, const ClusterNodes& nodes) {
  if (nodes.cores == 0) return 1 / nodes.speed;
  int measured = 0;  // devices of a node that were at work together when they were measured
  for (const ProductTime& product : cluster.device.products) measured = std::max(measured, product.busy);
  return std::max(1.0, double(nodes.devices) / std::max(nodes.cores, measured)) / nodes.speed;
}

double slowness(const Cluster& cluster) {
  double most = 0;
  for (const ClusterNodes& nodes : cluster.nodes) most = std::max(most, slowness(cluster, nodes));
  return most;
}

double exposed_time(const Cluster& cluster, double transfer, double computation) {
  return std::max(transfer - computation, 0.0) +
         (is_on_cores(cluster) ? kHiddenCostOnCores : kHiddenCost) * std::min(transfer, computation);
}

double collective_time(const ClusterNetwork& network, ClusterVerb verb, const GroupPlace& place, double bytes,
                       double share) {
  if (place.size == 1) return 0;
  const double n = place.size, rounds = verb == ClusterVerb::kAllReduce ? 2 : 1;
  const double passing = rounds * (n - 1) / n * bytes;  // each rank sends and receives so much, on a ring
  const double inside_hop = network.inside.latency + network.inside.overhead;
  if (place.is_inside())
    return network.start + rounds * (n - 1) * inside_hop + passing / (network.inside.bandwidth * share);
  // Trees between nodes, rings inside. The cards of a node carry what passes for each of its groups.
  const double between_hop = network.between.latency + network.between.overhead;
  const double cards = network.cards * network.between.bandwidth * share / place.at_once;
  const double inside = place.here > 1 ? passing / (network.inside.bandwidth * share) : 0;
  return network.start + rounds * ((place.here - 1) * inside_hop + std::log2(place.nodes) * between_hop) +
         std::max(passing / cards, inside);
}

double message_time(const ClusterNetwork& network, int crossing, double bytes) {
  if (crossing == 0) return network.inside.latency + network.inside.overhead + bytes / network.inside.bandwidth;
  const double share = double(network.cards) / crossing;  // of a card, or several of them
  return network.between.latency + network.between.overhead + bytes / (network.between.bandwidth * share);
}

}  // namespace tutti::planning
