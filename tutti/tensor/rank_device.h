#pragma once
// On which device a rank of a training program computes.
#include <c10/core/Device.h>

#include <string>

namespace tutti {

class Group;

// `choice`: "cpu"; "cuda", the GPU that Group::device() names; or "auto", which is "cuda" if every rank has a GPU that
// LibTorch can use, else "cpu", with a line of log that says why. A GPU becomes the current one of this thread, so that
// libraries leave the other ranks' GPUs alone. Every rank calls, with the same choice. Throws an Exception on every
// rank if `choice` is "cuda" and a rank has no GPU.
c10::Device rank_device(const Group& world, const std::string& choice);

}  // namespace tutti
