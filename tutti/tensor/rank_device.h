#pragma once
// On which device a rank of a training program computes, and how its data gets there.
#include <c10/core/Device.h>

#include <string>

namespace at {
class Tensor;
}

namespace tutti {

class Group;

// `choice`: "cpu"; "cuda", the GPU that Group::device() names; or "auto", which is "cuda" if every rank has a GPU that
// LibTorch can use, else "cpu", with a line of log that says why. Ranks that share a GPU are a warning. A GPU becomes
// the current one of this thread, so that libraries leave the other ranks' GPUs alone. Every rank calls, with the same
// choice. Throws an Exception on every rank if `choice` is "cuda" and a rank has no GPU.
c10::Device rank_device(const Group& world, const std::string& choice);

// "ranks 0, 2 compute on one GPU (0000:01:00.0)", for all ranks that share one; empty where none does. Every rank
// calls.
std::string ranks_that_share_a_gpu(const Group& world, c10::Device device);

// A CPU tensor on `device`: a copy on a GPU that work put on the current stream from now on sees, by pinned memory; the
// host does not wait. The tensor itself on the CPU. Not part of an autograd graph.
at::Tensor copied_to(const at::Tensor& on_host, c10::Device device);

}  // namespace tutti
