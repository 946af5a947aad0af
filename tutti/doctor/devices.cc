// Three parties know of a GPU, and where they disagree something is wrong: the PCI bus (the card is there), the driver
// (it serves the card) and the CUDA runtime (this process is given it). A card that "fell off the bus" stays in sysfs
// or leaves the driver's list; a container may be given fewer device files than the driver has; CUDA_VISIBLE_DEVICES
// hides some, and everything after its first wrong entry.
#include "tutti/doctor/devices.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

std::string gpus(int count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

}  // namespace

DeviceFacts look_at_devices() {
  DeviceFacts facts;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", none)) {
    const std::string kind = line_of(entry.path() / "class");  // 0x0300xx VGA, 0x0302xx 3D controller
    if (line_of(entry.path() / "vendor") == "0x10de" && (kind.starts_with("0x0300") || kind.starts_with("0x0302")))
      ++facts.on_bus;
  }
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) ++facts.in_driver;
  for (const auto& entry : fs::directory_iterator("/dev", none)) {
    const std::string file = entry.path().filename();
    const auto number = file.starts_with("nvidia") ? parse_int(file.substr(6)) : std::nullopt;
    if (!number) continue;
    const bool open = ::access(entry.path().c_str(), R_OK | W_OK) == 0;
    (open ? facts.nodes : facts.forbidden).push_back(int(*number));
  }
  std::sort(facts.nodes.begin(), facts.nodes.end());
  std::sort(facts.forbidden.begin(), facts.forbidden.end());
  const std::string version = line_of("/proc/driver/nvidia/version");  // "NVRM version: NVIDIA ...  580.1  date"
  if (!version.empty())
    facts.driver = version.substr(version.find(':') == std::string::npos ? 0 : version.find(':') + 2);
  facts.visible_variable = env("CUDA_VISIBLE_DEVICES");
  if (const auto cuda = cuda::runtime(); cuda.ok()) {
    int count = 0;
    const Status counted = (*cuda)->check((*cuda)->cudaGetDeviceCount(&count), "count devices");
    if (counted.ok())
      facts.visible = count;
    else
      facts.runtime_trouble = counted.error().detail;
  } else {
    facts.runtime_trouble = cuda.error().detail;
  }
  return facts;
}

std::vector<Finding> check_devices(const DeviceFacts& facts, int ranks, std::optional<int> expected) {
  std::vector<Finding> findings;
  const auto add = [&](Grade grade, std::string fact, std::string fix = {}) {
    findings.push_back({grade, "devices", std::move(fact), std::move(fix)});
  };
  const int there = std::max({facts.on_bus, facts.in_driver, int(facts.nodes.size())});
  const int wanted = expected.value_or(0);
  if (there == 0 && !facts.visible.value_or(0)) {
    if (wanted > 0) {
      add(Grade::kFail, gpus(wanted) + " expected, none is on this host",
          "run where they are, or start the container with them (docker run --gpus all, a GPU resource in Kubernetes)");
    } else {
      add(Grade::kOk, "no GPU here; ranks compute on the CPU");
    }
    return findings;
  }
  if (facts.driver.empty() && facts.nodes.empty() && !facts.visible) {
    add(wanted > 0 ? Grade::kFail : Grade::kWarn, gpus(facts.on_bus) + " on the bus, but no NVIDIA driver is loaded",
        "install or load it (modprobe nvidia; nvidia-smi tells more)");
    return findings;
  }
  if (facts.in_driver > 0 && facts.on_bus > facts.in_driver) {
    add(Grade::kFail,
        gpus(facts.on_bus) + " on the bus, but the driver serves " + std::to_string(facts.in_driver) + ": one is lost",
        "dmesg | grep -i xid tells why; reset the GPU (nvidia-smi --gpu-reset) or restart the host, and keep jobs off "
        "it");
  }
  if (!facts.forbidden.empty())
    add(Grade::kFail, "this user may not open /dev/nvidia" + ranks_text(facts.forbidden),
        "join the group that owns it (ls -l /dev/nvidia*), or ask for the device in the job");
  if (!facts.visible) {
    add(wanted > 0 ? Grade::kFail : Grade::kWarn,
        gpus(there) + " here, but CUDA cannot use " + (there == 1 ? "it" : "them") + ": " + facts.runtime_trouble,
        "install a CUDA runtime (libcudart.so) that fits the driver, or set LD_LIBRARY_PATH to it");
    return findings;
  }
  const int visible = *facts.visible;
  const std::string hidden =
      facts.visible_variable ? " (CUDA_VISIBLE_DEVICES=" + *facts.visible_variable + ")" : std::string();
  if (wanted > visible) {
    add(Grade::kFail, gpus(wanted) + " expected, " + std::to_string(visible) + " visible" + hidden,
        facts.visible_variable ? "correct CUDA_VISIBLE_DEVICES: a wrong entry hides all that follow it"
                               : "nvidia-smi -L lists what the driver has; the job or container may be given fewer");
  } else if (visible < ranks) {
    add(Grade::kWarn,
        std::to_string(ranks) + " ranks, but " + gpus(visible) + " visible" + hidden +
            ": ranks share a device, which NCCL refuses",
        "tutti run -n " + std::to_string(std::max(1, visible)) +
            (facts.visible_variable ? ", or show more with CUDA_VISIBLE_DEVICES" : ""));
  } else {
    add(Grade::kOk, gpus(visible) + " visible for " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                        hidden + (facts.driver.empty() ? "" : ", driver " + facts.driver));
  }
  return findings;
}

}  // namespace tutti
