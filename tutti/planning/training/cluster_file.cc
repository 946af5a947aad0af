#include "tutti/planning/training/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/planning/training/cluster_units.h"

// As headers alone, and without exceptions: the library of the package is not needed.
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace tutti {
namespace {

constexpr std::uint64_t kMostBytes = 64 << 20;

constexpr struct {
  const char* name;
  ProductKind kind;
} kProductKinds[] = {{"forward", ProductKind::kForward},
                     {"input_gradient", ProductKind::kInputGradient},
                     {"weight_gradient", ProductKind::kWeightGradient}};

// The values that a number may have, in the unit of its key. The least values are far below any machine's.
struct KeyRange {
  double least, most;
};
constexpr KeyRange kTime{0, 1e9}, kTimeSpent{1e-6, 1e9}, kBandwidth{1e-6, 1e6};

// What the file says, for an error: `"80GB"`, `-3`.
std::string value_text(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  std::string words = text.str();
  std::replace(words.begin(), words.end(), '\n', ' ');
  constexpr std::size_t kMost = 40;
  return sanitize_line(words.size() > kMost ? words.substr(0, kMost) + "..." : words);
}

// The key that was meant: one with a unit where `word` has none, or the nearest.
std::optional<std::string> near_key(const std::string& word, const std::vector<std::string>& known) {
  for (const std::string& key : known)
    if (key.starts_with(word + "_")) return key;
  return nearest(word, known);
}

class ClusterReader {
 public:
  explicit ClusterReader(std::string file) : file_(std::move(file)) {}

  Error refused(const toml::source_region& at, std::string what, std::string hint = {}) const {
    const std::string line = at.begin.line > 0 ? fmt::format(":{}", at.begin.line) : "";
    return invalid_argument(fmt::format("{}{}: {}", file_, line, what), std::move(hint));
  }

  // `where`: how errors call the table.
  Status check_keys(const toml::table& table, const char* where, const std::vector<std::string>& known) const {
    for (const auto& [key, value] : table) {
      const std::string word(key.str());
      if (std::find(known.begin(), known.end(), word) == known.end())
        return refused(key.source(), fmt::format("{} is not known in {}", quoted_name(word), where),
                       did_you_mean(near_key(word, known), "known: " + join(known, ", ")));
    }
    return {};
  }

  // Absent: `value` stays.
  Status number(const toml::table& table, const char* key, const KeyRange& range, double unit, double& value) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return {};
    const auto found = node->is_number() ? node->value<double>() : std::nullopt;
    if (!found) return refused(node->source(), fmt::format("{} is {}, expected a number", key, value_text(*node)));
    if (!(*found >= range.least && *found <= range.most))
      return refused(node->source(), fmt::format("{} is {}, expected a number from {:g} to {:g}", key,
                                                 value_text(*node), range.least, range.most));
    value = *found * unit;
    return {};
  }
  Status whole_number(const toml::table& table, const char* key, int least, int most, int& value) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return {};
    const auto found = node->is_integer() ? node->value<std::int64_t>() : std::nullopt;
    if (!found || *found < least || *found > most)
      return refused(node->source(), fmt::format("{} is {}, expected a whole number from {} to {}", key,
                                                 value_text(*node), least, most));
    value = int(*found);
    return {};
  }
  Status required(const toml::table& table, const char* where, const char* key, const char* what,
                  const char* example) const {
    if (table.contains(key)) return {};
    return refused(table.source(), fmt::format("{} has no {}, {}", where, key, what),
                   fmt::format("for example: {} = {}", key, example));
  }
  // Null: there is none.
  Result<const toml::table*> table(const toml::table& parent, const char* key, const char* where) const {
    const toml::node* const node = parent.get(key);
    if (node == nullptr) return nullptr;
    const toml::table* const found = node->as_table();
    if (found == nullptr)
      return refused(node->source(), fmt::format("{} is {}, expected a table", where, value_text(*node)),
                     fmt::format("begin it with the line [{}]", where));
    return found;
  }

  Result<ClusterNodes> nodes(const toml::table& table) const {
    ClusterNodes nodes;
    TUTTI_TRY(check_keys(table, "nodes", {"count", "devices", "memory_gib", "cores", "speed"}));
    TUTTI_TRY(required(table, "nodes", "memory_gib", "the memory of one device", "80"));
    TUTTI_TRY(whole_number(table, "count", 1, kMostDevices, nodes.count));
    TUTTI_TRY(whole_number(table, "devices", 1, 65536, nodes.devices));
    TUTTI_TRY(number(table, "memory_gib", {1e-3, 1e6}, planning::units::kGiB, nodes.memory));
    TUTTI_TRY(whole_number(table, "cores", 0, 65536, nodes.cores));
    TUTTI_TRY(number(table, "speed", {1e-3, 1e3}, 1, nodes.speed));
    return nodes;
  }

  Result<ClusterLink> link(const toml::table& table, const char* where) const {
    ClusterLink link;
    TUTTI_TRY(check_keys(table, where, {"latency_us", "bandwidth_gb_s", "overhead_us"}));
    TUTTI_TRY(required(table, where, "bandwidth_gb_s", "1e9 bytes a second in each direction", "12.5"));
    TUTTI_TRY(number(table, "latency_us", kTime, planning::units::kMicrosecond, link.latency));
    TUTTI_TRY(number(table, "bandwidth_gb_s", kBandwidth, planning::units::kGigabyte, link.bandwidth));
    TUTTI_TRY(number(table, "overhead_us", kTime, planning::units::kMicrosecond, link.overhead));
    return link;
  }

  Result<ClusterNetwork> network(const toml::table& root, const Cluster& cluster) const {
    ClusterNetwork network;
    const toml::table* const found = TUTTI_TRY(table(root, "network", "network"));
    static const toml::table nothing;
    const toml::table& here = found ? *found : nothing;
    TUTTI_TRY(check_keys(here, "network", {"inside", "between", "cards", "start_us"}));
    TUTTI_TRY(whole_number(here, "cards", 1, 1024, network.cards));
    TUTTI_TRY(number(here, "start_us", kTime, planning::units::kMicrosecond, network.start));
    const toml::table* const inside = TUTTI_TRY(table(here, "inside", "network.inside"));
    const toml::table* const between = TUTTI_TRY(table(here, "between", "network.between"));
    if (inside) network.inside = TUTTI_TRY(link(*inside, "network.inside"));
    if (between) network.between = TUTTI_TRY(link(*between, "network.between"));
    const bool shared = std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                                    [](const ClusterNodes& nodes) { return nodes.devices > 1; });
    const bool several = cluster.nodes.size() > 1 || cluster.nodes[0].count > 1;
    if (shared && !inside)
      return refused(here.source(), "there is no network.inside, the link between two devices of a node",
                     "for example: inside = { latency_us = 3, bandwidth_gb_s = 230 }");
    if (several && !between)
      return refused(here.source(), "there is no network.between, the link from node to node",
                     "for example: between = { latency_us = 5, bandwidth_gb_s = 22.5 }");
    return network;
  }

  Result<ProductTime> product(const toml::node& node) const {
    ProductTime product;
    const toml::table* const found = node.as_table();
    if (found == nullptr)
      return refused(node.source(), fmt::format("a product is {}, expected a table", value_text(node)),
                     "for example: { kind = \"forward\", m = 512, n = 768, k = 768, us = 810 }");
    TUTTI_TRY(check_keys(*found, "a product", {"kind", "m", "n", "k", "busy", "us"}));
    for (const char* key : {"kind", "m", "n", "k", "us"})
      if (!found->contains(key)) return refused(node.source(), fmt::format("a product has no {}", key));
    const auto name = (*found)["kind"].value<std::string>();
    const auto* const kind = std::find_if(std::begin(kProductKinds), std::end(kProductKinds),
                                          [&](const auto& known) { return name && *name == known.name; });
    if (kind == std::end(kProductKinds)) {
      std::vector<std::string> known;
      for (const auto& each : kProductKinds) known.emplace_back(each.name);
      return refused(found->get("kind")->source(),
                     fmt::format("kind is {}, expected one of {}", value_text(*found->get("kind")), join(known, ", ")),
                     did_you_mean(nearest(name.value_or(""), known)));
    }
    product.kind = kind->kind;
    constexpr int kMostWidth = 1 << 24;
    TUTTI_TRY(whole_number(*found, "m", 1, kMostWidth, product.m));
    TUTTI_TRY(whole_number(*found, "n", 1, kMostWidth, product.n));
    TUTTI_TRY(whole_number(*found, "k", 1, kMostWidth, product.k));
    TUTTI_TRY(whole_number(*found, "busy", 1, 65536, product.busy));
    TUTTI_TRY(number(*found, "us", kTimeSpent, planning::units::kMicrosecond, product.seconds));
    return product;
  }

  Result<DeviceRates> device(const toml::table& root) const {
    DeviceRates device;
    const toml::table* const found = TUTTI_TRY(table(root, "device", "device"));
    if (!found)
      return refused({}, "there is no [device], which says how fast a device computes",
                     "a preset of `tutti plan train` has one, and `tutti plan measure` writes one");
    TUTTI_TRY(check_keys(
        *found, "device",
        {"peak_tflops", "share", "product_start_us", "stream_gb_s", "function_ns", "launch_us", "products"}));
    TUTTI_TRY(required(*found, "device", "stream_gb_s", "the bandwidth of its memory in 1e9 bytes a second", "1600"));
    TUTTI_TRY(number(*found, "peak_tflops", {1e-9, 1e6}, planning::units::kTeraflop, device.peak));
    TUTTI_TRY(number(*found, "share", {1e-6, 1}, 1, device.share));
    TUTTI_TRY(number(*found, "product_start_us", kTime, planning::units::kMicrosecond, device.product_start));
    TUTTI_TRY(number(*found, "stream_gb_s", kBandwidth, planning::units::kGigabyte, device.stream_bandwidth));
    TUTTI_TRY(number(*found, "function_ns", kTime, planning::units::kNanosecond, device.function));
    TUTTI_TRY(number(*found, "launch_us", kTime, planning::units::kMicrosecond, device.launch));
    if (const toml::node* const node = found->get("products")) {
      const toml::array* const products = node->as_array();
      if (products == nullptr)
        return refused(node->source(), fmt::format("products is {}, expected a list", value_text(*node)));
      for (const toml::node& each : *products) device.products.push_back(TUTTI_TRY(product(each)));
    }
    if (device.peak == 0 && device.products.empty())
      return refused(found->source(), "device has neither peak_tflops nor products, and one of them is needed",
                     "for example: peak_tflops = 312");
    return device;
  }

  Result<Cluster> cluster(const toml::table& root) const {
    Cluster cluster;
    TUTTI_TRY(check_keys(root, "a cluster", {"name", "nodes", "network", "device"}));
    if (const toml::node* const node = root.get("name")) {
      const auto name = node->value<std::string>();
      if (!name) return refused(node->source(), fmt::format("name is {}, expected a text", value_text(*node)));
      cluster.name = sanitize_line(*name);
    }
    const toml::node* const nodes = root.get("nodes");
    if (nodes == nullptr || (nodes->is_array() && nodes->as_array()->empty()))
      return refused(nodes ? nodes->source() : toml::source_region(), "there are no [[nodes]]",
                     "for example: [[nodes]], and below it count = 4, devices = 8, memory_gib = 80");
    const toml::array* const list = nodes->as_array();
    if (list == nullptr) return refused(nodes->source(), "nodes is no list", "begin it with the line [[nodes]]");
    std::int64_t devices = 0;
    for (const toml::node& each : *list) {
      const toml::table* const found = each.as_table();
      if (found == nullptr)
        return refused(each.source(), fmt::format("nodes has {}, expected a table", value_text(each)));
      cluster.nodes.push_back(TUTTI_TRY(this->nodes(*found)));
      devices += std::int64_t(cluster.nodes.back().count) * cluster.nodes.back().devices;
      if (devices > kMostDevices)
        return refused(each.source(),
                       fmt::format("the nodes have {} devices, expected at most {}", devices, kMostDevices));
    }
    cluster.network = TUTTI_TRY(network(root, cluster));
    cluster.device = TUTTI_TRY(device(root));
    return cluster;
  }

 private:
  std::string file_;
};

// In the unit of a key.
std::string figure_text(double value, double unit = 1) { return fmt::format("{:.12g}", value / unit); }

std::string link_text(const char* name, const ClusterLink& link) {
  return fmt::format("\n[network.{}]\nlatency_us = {}\nbandwidth_gb_s = {}\noverhead_us = {}\n", name,
                     figure_text(link.latency, planning::units::kMicrosecond),
                     figure_text(link.bandwidth, planning::units::kGigabyte),
                     figure_text(link.overhead, planning::units::kMicrosecond));
}

// A TOML string.
std::string toml_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : sanitize_line(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, const std::string& file) {
  const ClusterReader reader(file);
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return reader.refused(parsed.error().source(),
                          "not TOML: " + sanitize_line(std::string(parsed.error().description())));
  return reader.cluster(parsed.table());
}

Result<Cluster> read_cluster(const std::string& path) {
  return parse_cluster(TUTTI_TRY(read_file(path, kMostBytes)), path);
}

std::string cluster_text(const Cluster& cluster, std::span<const std::string> comments) {
  std::string text;
  for (const std::string& comment : comments) text += "# " + sanitize_line(comment) + "\n";
  if (!cluster.name.empty()) text += fmt::format("name = {}\n", toml_string(cluster.name));
  for (const ClusterNodes& nodes : cluster.nodes) {
    text += fmt::format("\n[[nodes]]\ncount = {}\ndevices = {}\nmemory_gib = {}\ncores = {}\n", nodes.count,
                        nodes.devices, figure_text(nodes.memory, planning::units::kGiB), nodes.cores);
    if (nodes.speed != 1) text += fmt::format("speed = {}\n", figure_text(nodes.speed));
  }
  const ClusterNetwork& network = cluster.network;
  text += fmt::format("\n[network]\ncards = {}\nstart_us = {}\n", network.cards,
                      figure_text(network.start, planning::units::kMicrosecond));
  // A link without a bandwidth is one that this cluster does not have.
  if (network.inside.bandwidth > 0) text += link_text("inside", network.inside);
  if (network.between.bandwidth > 0) text += link_text("between", network.between);
  const DeviceRates& device = cluster.device;
  text += "\n[device]\n";
  if (device.peak > 0) text += fmt::format("peak_tflops = {}\n", figure_text(device.peak, planning::units::kTeraflop));
  text += fmt::format("share = {}\nproduct_start_us = {}\nstream_gb_s = {}\nfunction_ns = {}\nlaunch_us = {}\n",
                      figure_text(device.share), figure_text(device.product_start, planning::units::kMicrosecond),
                      figure_text(device.stream_bandwidth, planning::units::kGigabyte),
                      figure_text(device.function, planning::units::kNanosecond),
                      figure_text(device.launch, planning::units::kMicrosecond));
  if (device.products.empty()) return text;
  text += "products = [\n";
  for (const ProductTime& product : device.products) {
    const auto* const kind = std::find_if(std::begin(kProductKinds), std::end(kProductKinds),
                                          [&](const auto& known) { return known.kind == product.kind; });
    text +=
        fmt::format("  {{ kind = \"{}\", m = {}, n = {}, k = {}, busy = {}, us = {} }},\n", kind->name, product.m,
                    product.n, product.k, product.busy, figure_text(product.seconds, planning::units::kMicrosecond));
  }
  return text + "]\n";
}

}  // namespace tutti
