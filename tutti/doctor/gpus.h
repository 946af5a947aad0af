#pragma once
// The GPUs of a host and what lies between them, as values: from NVIDIA's management library (libnvidia-ml, which
// nvidia-smi uses too) and the kernel's sysfs. Nothing of CUDA starts, which would take a second and memory on each
// GPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::doctor {

// nvidia-smi --compute-mode
enum class ComputeMode { kShared, kExclusive, kProhibited };
const char* name(ComputeMode mode);  // "shared", "exclusive", "prohibited"

// How near a network card is to a GPU on the PCI tree.
enum class CardDistance { kSameSwitch, kSameNode, kOtherNode };
const char* name(CardDistance distance);  // "same PCIe switch", "same NUMA node", "another NUMA node"

struct GpuInfo {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-8f2a..."
  std::string address;       // on the PCI bus: "0000:17:00.0"
  std::uint64_t memory = 0;  // bytes
  ComputeMode mode = ComputeMode::kShared;
  std::vector<int> nvlink;     // places in the survey of the GPUs that NVLink joins it to, directly or by a switch
  std::vector<int> no_access;  // of those whose memory it cannot access
  std::optional<int> numa;     // none: the firmware does not say
  std::string card;            // the nearest network card, "mlx5_0" or "eth0"; empty: none on the PCI bus
  CardDistance card_distance = CardDistance::kOtherNode;
  std::string trouble;  // why the driver says nothing about it ("GPU is lost"); empty: it does

  bool operator==(const GpuInfo&) const = default;
};

struct GpuSurvey {
  std::vector<GpuInfo> gpus;  // those that this process may open, in the order of the PCI bus
  std::string trouble;        // why the library cannot be used; empty: it can
};

// `root` has proc, sys and dev of the host.
GpuSurvey survey_gpus(const std::string& root = "");

// Where the GPUs that CUDA_VISIBLE_DEVICES names are in the survey; names that mean none are absent. Numbers count in
// the order of the PCI bus, which is CUDA's order unless GPUs differ in speed.
std::vector<int> places_of(const std::vector<std::string>& visible, const GpuSurvey& survey);

// A list of objects with the members' names, and the place as "index".
std::string to_json(const std::vector<GpuInfo>& gpus);
// kCorrupt: from another version of tutti, or damaged.
Result<std::vector<GpuInfo>> gpus_from_json(const std::string& text);

}  // namespace tutti::doctor
