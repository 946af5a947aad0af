#include "tutti/doctor/gpu_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::doctor {
namespace {

std::string gpus_text(const std::vector<int>& places) {
  return (places.size() == 1 ? "GPU " : "GPUs ") + ranks_text(places);
}

// As nvidia-smi -i takes them: "0,1".
std::string numbers(const std::vector<int>& places) { return fmt::format("{}", fmt::join(places, ",")); }

class GpuChecks {
 public:
  GpuChecks(const GpuSurvey& survey, const GpuJob& job) : survey_(survey), job_(job) {}

  std::vector<Finding> run() {
    if (!survey_.trouble.empty() && job_.has_gpus) return unknown();
    for (std::size_t i = 0; i < survey_.gpus.size(); ++i) describe(int(i));
    modes();
    peers();
    for (const int place : used()) cores_and_card(place);
    return std::move(findings_);
  }

 private:
  void add(Grade grade, const std::string& subject, std::string fact, std::string fix = {}) {
    findings_.push_back({grade, subject, std::move(fact), std::move(fix)});
  }
  const GpuInfo& gpu(int place) const { return survey_.gpus[std::size_t(place)]; }
  static std::string subject(int place) { return fmt::format("gpu {}", place); }

  std::vector<Finding> unknown() {
    add(Grade::kWarn, "gpus", "what joins the GPUs is not known: " + survey_.trouble,
        "libnvidia-ml.so.1 belongs to the driver; in a container, pass it on (--gpus all, "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
    return std::move(findings_);
  }

  // Of the GPUs that ranks take, those that one does.
  std::vector<int> used() const {
    std::vector<int> places(
        job_.visible.begin(),
        job_.visible.begin() + std::min<std::ptrdiff_t>(std::ptrdiff_t(job_.visible.size()), job_.ranks));
    std::erase_if(places, [&](int place) { return !gpu(place).trouble.empty(); });
    return places;
  }

  void describe(int place) {
    const GpuInfo& it = gpu(place);
    if (!it.trouble.empty())
      return add(Grade::kFail, subject(place),
                 (it.name.empty() ? std::string("this GPU") : it.name) + " does not answer: " + it.trouble,
                 "dmesg | grep -i xid shows why; reset it (nvidia-smi --gpu-reset) or restart the host, and keep jobs "
                 "off it");
    std::string fact = fmt::format("{}, {}", it.name, bytes_text(it.memory));
    if (it.mode != ComputeMode::kShared) fact += fmt::format(", {} mode", name(it.mode));
    fact += it.numa ? fmt::format(", NUMA node {}", *it.numa) : ", NUMA node unknown";
    if (survey_.gpus.size() > 1) fact += it.nvlink.empty() ? ", PCIe only" : ", NVLink to " + gpus_text(it.nvlink);
    if (!it.card.empty()) fact += fmt::format(", network card {} ({})", it.card, name(it.card_distance));
    add(Grade::kOk, subject(place), std::move(fact));
  }

  void modes() {
    std::vector<int> prohibited, exclusive;
    for (const int place : used()) {
      if (gpu(place).mode == ComputeMode::kProhibited) prohibited.push_back(place);
      if (gpu(place).mode == ComputeMode::kExclusive) exclusive.push_back(place);
    }
    if (!prohibited.empty())
      add(Grade::kFail, "gpus", gpus_text(prohibited) + ": the compute mode lets no process compute there",
          "as root: nvidia-smi -i " + numbers(prohibited) + " -c DEFAULT");
    if (!exclusive.empty() && std::size_t(job_.ranks) > job_.visible.size())
      add(Grade::kFail, "gpus",
          fmt::format("{} {} in exclusive mode, and {} ranks share {} {}: the second process on a GPU is refused",
                      gpus_text(exclusive), exclusive.size() == 1 ? "is" : "are", job_.ranks, job_.visible.size(),
                      job_.visible.size() == 1 ? "GPU" : "GPUs"),
          fmt::format("tutti run -n {}, or as root: nvidia-smi -i {} -c DEFAULT", job_.visible.size(),
                      numbers(exclusive)));
  }

  void peers() {
    const std::vector<int> places = used();
    for (const int from : places) {
      std::vector<int> closed;
      for (const int to : gpu(from).no_access)
        if (std::find(places.begin(), places.end(), to) != places.end()) closed.push_back(to);
      if (!closed.empty())
        add(Grade::kWarn, subject(from),
            "cannot access the memory of " + gpus_text(closed) + ": copies between them pass through the host",
            "nvidia-smi topo -p2p r shows which pairs can; PCI access control (ACS) and an IOMMU prevent it, and some "
            "models never can");
    }
  }

  void cores_and_card(int place) {
    const GpuInfo& it = gpu(place);
    if (!it.numa) return;
    const auto& nodes = job_.core_nodes;
    if (!nodes.empty() && std::find(nodes.begin(), nodes.end(), *it.numa) == nodes.end())
      add(Grade::kWarn, subject(place), fmt::format("on NUMA node {}, of which this process may use no core", *it.numa),
          "ask the scheduler or the container for cores near the GPU (--gpu-bind=closest, --cpuset-cpus)");
    if (job_.nodes > 1 && !it.card.empty() && it.card_distance == CardDistance::kOtherNode)
      add(Grade::kWarn, subject(place),
          fmt::format("its nearest network card, {}, is on another NUMA node than the GPU and the cores near it (node "
                      "{}): messages to other hosts cross the sockets",
                      it.card, *it.numa),
          "use the GPUs near the card first (CUDA_VISIBLE_DEVICES), or move the card");
  }

  const GpuSurvey& survey_;
  const GpuJob& job_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_gpus(const GpuSurvey& survey, const GpuJob& job) { return GpuChecks(survey, job).run(); }

}  // namespace tutti::doctor
