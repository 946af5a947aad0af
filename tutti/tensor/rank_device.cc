#include "tutti/tensor/rank_device.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

// Uses the GPU of this rank: whether LibTorch has it, and CUDA lets this process use it.
Status use_gpu(const Group& world, const c10::Device& device) {
  const auto no = [&](std::string detail, std::string hint) {
    return Error{.code = Code::kUnsupported,
                 .detail = std::move(detail),
                 .hint = std::move(hint),
                 .group = world.name(),
                 .rank = world.rank()};
  };
  if (!device.is_cuda())
    return no("this rank has no GPU", "nvidia-smi -L lists GPUs; CUDA_VISIBLE_DEVICES and TUTTI_DEVICE may hide them");
  if (!at::globalContext().hasCUDA())
    return no(fmt::format("this LibTorch, {}, was built without CUDA", torch_version()),
              "build Tutti with a LibTorch that has CUDA (docs/install.md), or train on the CPU");
  const int count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  if (device.index() >= count)
    return no(fmt::format("this rank computes on {}, and LibTorch finds {} {}", device.str(), count,
                          count == 1 ? "GPU" : "GPUs"),
              "TUTTI_DEVICE and CUDA_VISIBLE_DEVICES say which GPUs a rank has");
  // CUDA refuses a GPU in exclusive mode at its first use. The GPU stays the current one, since a change back would use
  // another GPU as well.
  const auto use = [&]() -> Status {
    const cuda::Runtime* const runtime = TUTTI_TRY(cuda::runtime_with(device.index()));
    TUTTI_TRY(runtime->check(runtime->cudaSetDevice(device.index()), "use this GPU"));
    return cuda::Event::make(*runtime).status();
  };
  const Status used = use();
  return used.ok() ? used : no(device.str() + ": " + used.error().detail, used.error().hint);
}

}  // namespace

c10::Device rank_device(const Group& world, const std::string& choice) {
  TUTTI_REQUIRE(choice == "cpu" || choice == "cuda" || choice == "auto", "a device \"", choice,
                "\", expected cpu, cuda or auto");
  if (choice == "cpu") return c10::kCPU;
  c10::Device device(world.device());
  if (device.is_cuda() && !device.has_index()) device.set_index(0);
  const Status usable = agree(world, use_gpu(world, device));
  if (choice == "cuda") usable.or_throw();
  if (!usable.ok()) {
    if (world.rank() == 0) log::info("training on the CPU: " + to_string(usable.error()));
    return c10::kCPU;
  }
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  if (const std::string shared = ranks_that_share_a_gpu(world, device); !shared.empty() && world.rank() == 0)
    log::warn(fmt::format("{}: each has a part of its time and memory (CUDA_VISIBLE_DEVICES is {})", shared,
                          env("CUDA_VISIBLE_DEVICES").value_or("not set")));
  return device;
}

std::string ranks_that_share_a_gpu(const Group& world, c10::Device device) {
  char bus[32] = "";
  if (const auto runtime = cuda::runtime(); runtime.ok() && device.is_cuda())
    if ((*runtime)->cudaDeviceGetPCIBusId(bus, sizeof bus, device.index()) != 0) (*runtime)->cudaGetLastError();
  constexpr std::size_t kLength = 48;
  const std::string text = bus[0] ? fmt::format("{} {}", world.node(), bus) : "";
  std::vector<std::uint8_t> mine(kLength, 0), all(kLength * std::size_t(world.size()));
  std::copy(text.begin(), text.end(), mine.begin());
  all_gather(world, std::span<const std::uint8_t>(mine), std::span(all));
  std::map<std::string, std::vector<int>> ranks_on;
  for (int rank = 0; rank < world.size(); ++rank)
    if (const auto* const at = &all[kLength * std::size_t(rank)]; *at)
      ranks_on[reinterpret_cast<const char*>(at)].push_back(rank);
  std::vector<std::string> shared;
  for (const auto& [gpu, ranks] : ranks_on)
    if (ranks.size() > 1)
      shared.push_back(
          fmt::format("ranks {} compute on one GPU ({})", ranks_text(ranks), gpu.substr(gpu.find(' ') + 1)));
  return join(shared, "; ");
}

at::Tensor copied_to(const at::Tensor& on_host, c10::Device device) {
  if (device.is_cpu()) return on_host;
  const at::Tensor from = on_host.detach();
  return at::empty(from.sizes(), from.options().pinned_memory(true)).copy_(from).to(device, /*non_blocking=*/true);
}

}  // namespace tutti
