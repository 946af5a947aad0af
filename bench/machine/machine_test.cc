#include "bench/machine/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/ranks.h"
#include "tutti/planning/training/cluster_file.h"

namespace tutti::bench {
namespace {

// Small whole numbers, so that sums are exact.
std::vector<float> matrix(std::size_t count, int seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = float(int(i * 7 + std::size_t(seed)) % 5 - 2);
  return values;
}

// The products by their definition, in the layout of multiply().
std::vector<float> by_hand(ProductKind kind, int m, int n, int k, const std::vector<float>& a,
                           const std::vector<float>& b) {
  std::vector<float> out(sizes_of(kind, m, n, k).out);
  for (int row = 0; row < m; ++row)
    for (int output = 0; output < n; ++output)
      for (int input = 0; input < k; ++input) {
        const std::size_t of_row = std::size_t(row) * k + input, of_weight = std::size_t(output) * k + input,
                          of_output = std::size_t(row) * n + output;
        if (kind == ProductKind::kForward) out[of_output] += a[of_row] * b[of_weight];
        if (kind == ProductKind::kInputGradient) out[of_row] += a[of_output] * b[of_weight];
        if (kind == ProductKind::kWeightGradient) out[of_weight] += a[of_output] * b[of_row];
      }
  return out;
}

TEST(Products, EachKindIsTheProductThatALayerMakes) {
  const ProductLibrary library = ProductLibrary::load().or_throw();
  constexpr int m = 5, n = 7, k = 3;
  for (const ProductKind kind : {ProductKind::kForward, ProductKind::kInputGradient, ProductKind::kWeightGradient}) {
    const ProductSizes sizes = sizes_of(kind, m, n, k);
    const std::vector<float> a = matrix(sizes.a, 1), b = matrix(sizes.b, 2);
    std::vector<float> out(sizes.out, 99.0f);
    library.multiply(kind, m, n, k, a.data(), b.data(), out.data());
    EXPECT_EQ(out, by_hand(kind, m, n, k, a, b)) << int(kind);
  }
}

TEST(Machine, UsualShapesStayWithinTheirLimit) {
  const std::vector<ProductShape> shapes = usual_shapes();
  EXPECT_NE(std::find(shapes.begin(), shapes.end(), ProductShape{1024, 1024, 1024}), shapes.end());
  EXPECT_EQ(std::find(shapes.begin(), shapes.end(), ProductShape{4096, 4096, 4096}), shapes.end());
}

// Ranks that are hosts of their own, or share one: the cluster is whole, and its file can be read.
void check_measure(const std::string& transport, const std::function<void(const MachineMeasure&)>& check) {
  const auto outcomes = test::run_processes(
      2,
      [&](Group& world) {
        const MachineMeasure measured = measure_machine(world, {{16, 32, 48}}, {}).or_throw();
        const std::string text = cluster_text(measured.cluster, measured.comments);
        test::check(cluster_text(parse_cluster(text, "measured").or_throw(), measured.comments) == text, text);
        check(measured);
      },
      {.transport = transport});
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Machine, RanksOfOneHost) {
  check_measure("", [](const MachineMeasure& measured) {
    const Cluster& cluster = measured.cluster;
    test::check(cluster.nodes.size() == 1 && cluster.nodes[0].count == 1 && cluster.nodes[0].devices == 2, "nodes");
    test::check(cluster.network.inside.bandwidth > 0 && cluster.network.between.bandwidth == 0, "links");
    test::check(cluster.device.function > 0, "functions");
    // 3 kinds with one rank busy, and with both.
    test::check(cluster.device.products.size() == 6, "products");
    test::check(cluster.device.products[0].busy == 1 && cluster.device.products[5].busy == 2, "busy");
    for (const ProductTime& product : cluster.device.products)
      test::check(product.m == 16 && product.n == 32 && product.k == 48 && product.seconds > 0, "product");
    const auto checks = std::count_if(measured.comments.begin(), measured.comments.end(), [](const std::string& line) {
      return line.starts_with("all_reduce of ") && line.find(", by these figures ") != line.npos;
    });
    test::check(checks == 3, checks, " checks of all_reduce");
  });
}

TEST(Machine, RanksOfTwoHosts) {
  check_measure("tcp", [](const MachineMeasure& measured) {
    const Cluster& cluster = measured.cluster;
    test::check(cluster.nodes.size() == 1 && cluster.nodes[0].count == 2 && cluster.nodes[0].devices == 1, "nodes");
    test::check(cluster.network.inside.bandwidth == 0 && cluster.network.between.bandwidth > 0, "links");
    test::check(cluster.device.products.size() == 3, "products");
  });
}

}  // namespace
}  // namespace tutti::bench
