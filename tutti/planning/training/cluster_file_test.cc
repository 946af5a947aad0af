#include "tutti/planning/training/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/planning/training/cluster_presets.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kWhole = R"(name = "two kinds"

[[nodes]]
count = 3
devices = 8
memory_gib = 80

[[nodes]]
devices = 4
memory_gib = 15.5
cores = 2
speed = 0.75
[network]
cards = 8
start_us = 20
inside = { latency_us = 2.5, bandwidth_gb_s = 230 }

[network.between]
latency_us = 5
bandwidth_gb_s = 20
overhead_us = 0.5

[device]
peak_tflops = 312
share = 0.85
product_start_us = 20
stream_gb_s = 1600
function_ns = 0.5
launch_us = 8
products = [
  { kind = "forward", m = 512, n = 768, k = 256, us = 810.5 },
  { kind = "weight_gradient", m = 512, n = 768, k = 256, busy = 2, us = 900 },
]
)";

TEST(ClusterFile, EveryKeyIsRead) {
  const Cluster cluster = parse_cluster(kWhole, "c.toml").or_throw();
  EXPECT_EQ(cluster.name, "two kinds");
  ASSERT_EQ(cluster.nodes.size(), 2u);
  EXPECT_EQ(cluster.devices(), 28);
  EXPECT_EQ(cluster.nodes[0].count, 3);
  EXPECT_DOUBLE_EQ(cluster.nodes[0].memory, 80.0 * (1 << 30));
  EXPECT_EQ(cluster.nodes[0].cores, 0);
  EXPECT_EQ(cluster.nodes[1].count, 1);
  EXPECT_DOUBLE_EQ(cluster.nodes[1].memory, 15.5 * (1 << 30));
  EXPECT_EQ(cluster.nodes[1].cores, 2);
  EXPECT_EQ(cluster.nodes[0].speed, 1);
  EXPECT_EQ(cluster.nodes[1].speed, 0.75);
  EXPECT_EQ(cluster.network.cards, 8);
  EXPECT_DOUBLE_EQ(cluster.network.start, 20e-6);
  EXPECT_DOUBLE_EQ(cluster.network.inside.latency, 2.5e-6);
  EXPECT_DOUBLE_EQ(cluster.network.inside.bandwidth, 230e9);
  EXPECT_EQ(cluster.network.inside.overhead, 0);
  EXPECT_DOUBLE_EQ(cluster.network.between.latency, 5e-6);
  EXPECT_DOUBLE_EQ(cluster.network.between.bandwidth, 20e9);
  EXPECT_DOUBLE_EQ(cluster.network.between.overhead, 0.5e-6);
  EXPECT_DOUBLE_EQ(cluster.device.peak, 312e12);
  EXPECT_DOUBLE_EQ(cluster.device.share, 0.85);
  EXPECT_DOUBLE_EQ(cluster.device.product_start, 20e-6);
  EXPECT_DOUBLE_EQ(cluster.device.stream_bandwidth, 1600e9);
  EXPECT_DOUBLE_EQ(cluster.device.function, 0.5e-9);
  EXPECT_DOUBLE_EQ(cluster.device.launch, 8e-6);
  ASSERT_EQ(cluster.device.products.size(), 2u);
  const ProductTime& product = cluster.device.products[1];
  EXPECT_EQ(product.kind, ProductKind::kWeightGradient);
  EXPECT_EQ((std::vector{product.m, product.n, product.k, product.busy}), (std::vector{512, 768, 256, 2}));
  EXPECT_DOUBLE_EQ(product.seconds, 900e-6);
  EXPECT_EQ(cluster.device.products[0].busy, 1);
  EXPECT_DOUBLE_EQ(cluster.device.products[0].seconds, 810.5e-6);
}

TEST(ClusterFile, WhatIsWrittenIsRead) {
  Cluster cluster = parse_cluster(kWhole, "c.toml").or_throw();
  cluster.name = "a \"name\" with \\ and\nmore";
  cluster.network.inside.latency = 1e-6 / 3;
  const std::vector<std::string> comments = {"measured", "on two\nlines"};
  const std::string text = cluster_text(cluster, comments);
  EXPECT_THAT(text, StartsWith("# measured\n# on two?lines\nname = \"a \\\"name\\\" with \\\\ and?more\"\n"));
  const Cluster again = parse_cluster(text, "again").or_throw();
  EXPECT_EQ(cluster_text(again, comments), text);
  EXPECT_NEAR(again.network.inside.latency, 1e-6 / 3, 1e-18);
  EXPECT_EQ(again.device.products[1].kind, ProductKind::kWeightGradient);
}

TEST(ClusterFile, OneDeviceNeedsNoNetwork) {
  const char* const text = "nodes = [{ memory_gib = 4 }]\n[device]\npeak_tflops = 0.1\nstream_gb_s = 10\n";
  const Cluster cluster = parse_cluster(text, "one.toml").or_throw();
  EXPECT_EQ(cluster.devices(), 1);
  EXPECT_EQ(cluster_text(parse_cluster(cluster_text(cluster), "again").or_throw()), cluster_text(cluster));
}

// A line of kWhole, what takes its place, and what the error says.
struct Mistake {
  const char *line, *instead, *detail, *hint;
};

TEST(ClusterFile, MistakesAreSentencesWithFileAndLine) {
  for (const auto& [line, instead, detail, hint] : std::vector<Mistake>{
           {"memory_gib = 15.5", "", "c.toml:8: nodes has no memory_gib, the memory of one device", "memory_gib = 80"},
           {"memory_gib = 80", "memory_gib = \"80GB\"", "c.toml:6: memory_gib is '80GB', expected a number", ""},
           {"memory_gib = 80", "memory_gib = 0", "c.toml:6: memory_gib is 0, expected a number from 0.001 to", ""},
           {"memory_gib = 80", "memory_gb = 80", "c.toml:6: \"memory_gb\" is not known in nodes", "mean memory_gib?"},
           {"count = 3", "count = 2.5", "c.toml:4: count is 2.5, expected a whole number from 1 to 1048576", ""},
           {"count = 3", "count = 1000000", "c.toml:3: the nodes have 8000000 devices, expected at most 1048576", ""},
           {"bandwidth_gb_s = 20\n", "", "c.toml:18: network.between has no bandwidth_gb_s, 1e9 bytes", "12.5"},
           {"bandwidth_gb_s = 20\n", "bandwidth_gb_s = inf\n", "c.toml:20: bandwidth_gb_s is inf, expected", ""},
           {"latency_us = 5\n", "latency_us = -5\n", "c.toml:19: latency_us is -5, expected a number from 0 to", ""},
           {"latency_us = 5\n", "latency_us = nan\n", "c.toml:19: latency_us is nan, expected", ""},
           {"latency_us = 5\n", "latency = 5\n", "c.toml:19: \"latency\" is not known in network.between",
            "did you mean latency_us?"},
           {"inside = {", "insid = {", "c.toml:16: \"insid\" is not known in network", "did you mean inside?"},
           {"inside = { latency_us = 2.5, bandwidth_gb_s = 230 }", "", "c.toml:13: there is no network.inside",
            "inside = {"},
           {"share = 0.85", "share = 85", "c.toml:25: share is 85, expected a number from 1e-06 to 1", ""},
           {"stream_gb_s = 1600", "", "c.toml:23: device has no stream_gb_s", "1600"},
           {"kind = \"forward\"", "kind = \"forwart\"", "c.toml:31: kind is 'forwart', expected one of forward, input",
            "did you mean forward?"},
           {"us = 900", "us = 0", "c.toml:32: us is 0, expected a number from 1e-06 to", ""},
           {"k = 256, us", "us", "c.toml:31: a product has no k", ""},
           {"name = ", "nam = ", "c.toml:1: \"nam\" is not known in a cluster", "did you mean name?"},
           {"name = ", "name == ", "c.toml:1: not TOML: ", ""},
           {"[device]", "[devices]", "c.toml:23: \"devices\" is not known in a cluster", "did you mean device?"}}) {
    std::string text = kWhole;
    const std::size_t at = text.find(line);
    ASSERT_NE(at, text.npos) << line;
    text.replace(at, std::string(line).size(), instead);
    const auto cluster = parse_cluster(text, "c.toml");
    ASSERT_FALSE(cluster.ok()) << instead;
    EXPECT_THAT(cluster.error().detail, StartsWith(detail));
    EXPECT_THAT(cluster.error().hint, HasSubstr(hint));
  }
}

TEST(ClusterFile, WhatEveryPlanNeedsIsThere) {
  const auto detail = [](const std::string& text) {
    const auto cluster = parse_cluster(text, "c.toml");
    return cluster.ok() ? "none" : cluster.error().detail;
  };
  const std::string nodes = "[[nodes]]\nmemory_gib = 4\ncount = 2\n";
  const std::string network = "[network]\nbetween = { bandwidth_gb_s = 1 }\n";
  EXPECT_EQ(detail(""), "c.toml: there are no [[nodes]]");
  EXPECT_EQ(detail("nodes = 3"), "c.toml:1: nodes is no list");
  EXPECT_EQ(detail("nodes = [3]"), "c.toml:1: nodes has 3, expected a table");
  EXPECT_EQ(detail(nodes), "c.toml: there is no network.between, the link from node to node");
  EXPECT_EQ(detail("network = 3\n" + nodes), "c.toml:1: network is 3, expected a table");
  EXPECT_EQ(detail(nodes + network), "c.toml: there is no [device], which says how fast a device computes");
  EXPECT_EQ(detail(nodes + network + "[device]\nstream_gb_s = 9\n"),
            "c.toml:6: device has neither peak_tflops nor products, and one of them is needed");
  EXPECT_EQ(detail(nodes + network + "[device]\nstream_gb_s = 9\npeak_tflops = 1\n"), "none");
  EXPECT_THAT(read_cluster("/nowhere/c.toml").error().detail, HasSubstr("/nowhere/c.toml"));
}

TEST(ClusterPresets, EachIsAWholeCluster) {
  for (const std::string& name : cluster_preset_names()) {
    const Cluster cluster = cluster_preset(name, 4).or_throw();
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.devices(), 32);
    const std::string text = cluster_text(cluster);
    EXPECT_EQ(cluster_text(parse_cluster(text, name).or_throw()), text);
  }
}

TEST(ClusterPresets, AreFoundByNameAndNumberOfNodes) {
  EXPECT_EQ(find_cluster("h100-sxm").or_throw().devices(), 8);
  EXPECT_EQ(find_cluster("h100-sxm:16").or_throw().devices(), 128);
  const auto error = [](const char* given) { return find_cluster(given).error(); };
  EXPECT_EQ(error("h100-sxn:2").detail, "there is no cluster \"h100-sxn\"");
  EXPECT_EQ(error("h100-sxn:2").hint, "did you mean h100-sxm?");
  EXPECT_THAT(error("mine").hint, HasSubstr("known: a100-sxm, h100-sxm,"));
  EXPECT_THAT(error("cpu:0").detail, HasSubstr("needs a number of nodes from 1 to"));
  EXPECT_THAT(error("mine.toml").detail, HasSubstr("mine.toml"));
}

}  // namespace
}  // namespace tutti
