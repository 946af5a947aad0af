// The library lists the GPUs in the order of the PCI bus, and those alone that this process may open. Its answers about
// one GPU may fail while the others are well: a lost GPU has a place and a trouble.
//
// The nearest network card is the one that shares most of its way to the root of the PCI tree with the GPU: sysfs
// resolves a device to that way, "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0". Below a common port there is a
// switch, through which data need not pass a processor.
#include "tutti/doctor/gpus.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "tutti/base/text.h"
#include "tutti/doctor/nvml.h"

namespace tutti::doctor {
namespace {

namespace fs = std::filesystem;

constexpr ComputeMode kModes[] = {ComputeMode::kShared, ComputeMode::kExclusive, ComputeMode::kProhibited};
constexpr CardDistance kDistances[] = {CardDistance::kSameSwitch, CardDistance::kSameNode, CardDistance::kOtherNode};

struct Card {
  std::string name;
  fs::path device;  // its way in the PCI tree
  std::optional<int> numa;
};

std::optional<int> numa_of(const fs::path& device) {
  std::ifstream file(device / "numa_node");
  std::string line;
  std::getline(file, line);
  const auto node = parse_int(trim(line));
  return node && *node >= 0 ? std::optional(int(*node)) : std::nullopt;
}

// InfiniBand and RoCE cards, which GPUs can reach directly; a host without them: its network interfaces.
std::vector<Card> cards_of(const std::string& root) {
  std::vector<Card> cards;
  for (const char* kind : {"/sys/class/infiniband", "/sys/class/net"}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root + kind, none)) {
      std::error_code failed;
      const fs::path device = fs::canonical(entry.path() / "device", failed);  // virtual ones have none
      if (!failed) cards.push_back({entry.path().filename(), device, numa_of(device)});
    }
    if (!cards.empty()) break;
  }
  std::sort(cards.begin(), cards.end(), [](const Card& a, const Card& b) { return a.name < b.name; });
  return cards;
}

// The ports that two devices have in common, below the root of the tree.
int common_ports(const fs::path& a, const fs::path& b) {
  int ports = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end() && *i == *j; ++i, ++j)
    if (const std::string part = i->string(); std::count(part.begin(), part.end(), ':') == 2) ++ports;
  return ports;
}

void find_card(GpuInfo& gpu, const std::vector<Card>& cards, const std::string& root) {
  std::error_code failed;
  const fs::path device = fs::canonical(root + "/sys/bus/pci/devices/" + gpu.address, failed);
  if (failed) return;
  gpu.numa = numa_of(device);
  std::tuple<int, bool> nearest{-1, false};
  for (const Card& card : cards) {
    const int ports = common_ports(device, card.device);
    const bool same_node = gpu.numa && card.numa == gpu.numa;
    if (std::tuple(ports, same_node) <= nearest) continue;
    nearest = {ports, same_node};
    gpu.card = card.name;
    gpu.card_distance = ports > 0   ? CardDistance::kSameSwitch
                        : same_node ? CardDistance::kSameNode
                                    : CardDistance::kOtherNode;
  }
}

// sysfs has a domain of four digits, in lower case; the library has eight, in upper case.
std::string kernel_address(std::string address) {
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::size_t domain = address.find(':');
  return domain != std::string::npos && domain > 4 ? address.substr(domain - 4) : address;
}

// Asks about one GPU; the first question that fails is its trouble.
class Questions {
 public:
  Questions(const Nvml& nvml, NvmlDevice device) : nvml_(nvml), device_(device) {}

  GpuInfo run() {
    char text[96] = "";
    if (ask(nvml_.nvmlDeviceGetPciInfo_v3(device_, &pci_))) gpu_.address = kernel_address(pci_.address);
    if (ask(nvml_.nvmlDeviceGetName(device_, text, sizeof text))) gpu_.name = text;
    if (ask(nvml_.nvmlDeviceGetUUID(device_, text, sizeof text))) gpu_.uuid = text;
    NvmlMemory memory{};
    if (ask(nvml_.nvmlDeviceGetMemoryInfo(device_, &memory))) gpu_.memory = memory.total;
    int mode = 0;
    if (ask(nvml_.nvmlDeviceGetComputeMode(device_, &mode))) {
      if (mode == kNvmlProhibited) gpu_.mode = ComputeMode::kProhibited;
      if (mode == kNvmlExclusiveThread || mode == kNvmlExclusiveProcess) gpu_.mode = ComputeMode::kExclusive;
    }
    return std::move(gpu_);
  }

 private:
  bool ask(int code) {
    if (code != 0 && gpu_.trouble.empty()) gpu_.trouble = nvml_.nvmlErrorString(code);
    return code == 0;
  }
  const Nvml& nvml_;
  const NvmlDevice device_;
  NvmlPci pci_{};
  GpuInfo gpu_;
};

void find_peers(const Nvml& nvml, const std::vector<NvmlDevice>& devices, std::vector<GpuInfo>& gpus) {
  for (std::size_t from = 0; from < gpus.size(); ++from)
    for (std::size_t to = 0; to < gpus.size(); ++to) {
      if (from == to || !gpus[from].trouble.empty() || !gpus[to].trouble.empty()) continue;
      int status = 0;
      if (nvml.nvmlDeviceGetP2PStatus(devices[from], devices[to], kNvmlP2pNvlink, &status) == 0 && status == 0)
        gpus[from].nvlink.push_back(int(to));
      if (nvml.nvmlDeviceGetP2PStatus(devices[from], devices[to], kNvmlP2pRead, &status) == 0 && status != 0)
        gpus[from].no_access.push_back(int(to));
    }
}

template <class Value, std::size_t size>
std::optional<Value> named(const Value (&values)[size], const std::string& text) {
  for (const Value value : values)
    if (text == name(value)) return value;
  return std::nullopt;
}

int integer(const nlohmann::json& value) {
  if (!value.is_number_integer() || value < 0 || value > 1 << 20) throw std::runtime_error("a number is out of range");
  return value.get<int>();
}

std::vector<int> integers(const nlohmann::json& list) {
  std::vector<int> numbers;
  if (!list.is_array()) throw std::runtime_error("a member is no list");
  for (const auto& value : list) numbers.push_back(integer(value));
  return numbers;
}

// Throws std::exception.
GpuInfo gpu_of(const nlohmann::json& item) {
  GpuInfo gpu;
  item.at("name").get_to(gpu.name);
  item.at("uuid").get_to(gpu.uuid);
  item.at("address").get_to(gpu.address);
  if (!item.at("memory").is_number_unsigned()) throw std::runtime_error("the memory is no number");
  item.at("memory").get_to(gpu.memory);
  gpu.nvlink = integers(item.at("nvlink"));
  gpu.no_access = integers(item.at("no_access"));
  if (!item.at("numa").is_null()) gpu.numa = integer(item.at("numa"));
  item.at("card").get_to(gpu.card);
  item.at("trouble").get_to(gpu.trouble);
  gpu.mode = named(kModes, item.at("mode").get<std::string>()).value_or(ComputeMode::kShared);
  gpu.card_distance = named(kDistances, item.at("card_distance").get<std::string>()).value_or(CardDistance::kOtherNode);
  return gpu;
}

}  // namespace

const char* name(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kShared:
      return "shared";
    case ComputeMode::kExclusive:
      return "exclusive";
    case ComputeMode::kProhibited:
      return "prohibited";
  }
  return "?";
}

const char* name(CardDistance distance) {
  switch (distance) {
    case CardDistance::kSameSwitch:
      return "same PCIe switch";
    case CardDistance::kSameNode:
      return "same NUMA node";
    case CardDistance::kOtherNode:
      return "another NUMA node";
  }
  return "?";
}

GpuSurvey survey_gpus(const std::string& root) {
  GpuSurvey survey;
  const auto nvml = load_nvml();
  if (!nvml.ok()) {
    survey.trouble = nvml.error().detail;
    return survey;
  }
  unsigned count = 0;
  int code = nvml->nvmlInit_v2();
  const bool begun = code == 0;
  if (begun) code = nvml->nvmlDeviceGetCount_v2(&count);
  if (code != 0) survey.trouble = std::string("NVIDIA's management library: ") + nvml->nvmlErrorString(code);
  const std::vector<Card> cards = cards_of(root);
  std::vector<NvmlDevice> devices;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (const int failed = nvml->nvmlDeviceGetHandleByIndex_v2(i, &device)) {
      survey.gpus.push_back({.trouble = nvml->nvmlErrorString(failed)});
    } else {
      survey.gpus.push_back(Questions(*nvml, device).run());
      find_card(survey.gpus.back(), cards, root);
    }
    devices.push_back(device);
  }
  find_peers(*nvml, devices, survey.gpus);
  if (begun) nvml->nvmlShutdown();
  return survey;
}

std::vector<int> places_of(const std::vector<std::string>& visible, const GpuSurvey& survey) {
  std::vector<int> places;
  for (const std::string& name : visible) {
    if (const auto number = parse_int(name)) {
      if (*number >= 0 && std::size_t(*number) < survey.gpus.size()) places.push_back(int(*number));
      continue;
    }
    std::vector<int> meant;
    for (std::size_t i = 0; i < survey.gpus.size(); ++i)
      if (name.starts_with("GPU-") && survey.gpus[i].uuid.starts_with(name)) meant.push_back(int(i));
    if (meant.size() == 1) places.push_back(meant.front());
  }
  return places;
}

std::string to_json(const std::vector<GpuInfo>& gpus) {
  auto list = nlohmann::json::array();
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const GpuInfo& gpu = gpus[i];
    list.push_back({{"index", i},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"address", gpu.address},
                    {"memory", gpu.memory},
                    {"mode", name(gpu.mode)},
                    {"nvlink", gpu.nvlink},
                    {"no_access", gpu.no_access},
                    {"numa", gpu.numa ? nlohmann::json(*gpu.numa) : nlohmann::json()},
                    {"card", gpu.card},
                    {"card_distance", name(gpu.card_distance)},
                    {"trouble", gpu.trouble}});
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<GpuInfo>> gpus_from_json(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  std::vector<GpuInfo> gpus;
  try {
    if (!list.is_array()) throw std::runtime_error("it is no list");
    for (const auto& item : list) gpus.push_back(gpu_of(item));
  } catch (const std::exception& error) {
    return Error{.code = Code::kCorrupt,
                 .detail = std::string("the GPUs of a node cannot be parsed: ") + error.what(),
                 .hint = "run the same version of tutti on all hosts"};
  }
  return gpus;
}

}  // namespace tutti::doctor
