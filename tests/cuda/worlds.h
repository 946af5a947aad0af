#pragma once
// Worlds whose ranks find GPUs: doubles of them, or with TUTTI_REAL_GPUS those of this machine, which ranks share where
// there are fewer GPUs than ranks.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/device_memory.h"
#include "tests/harness/ranks.h"
#include "tutti/base/env.h"
#include "tutti/base/machine.h"
#include "tutti/comm/collectives.h"
#ifndef TUTTI_REAL_GPUS
#include "tests/fakes/cuda/cudart.h"
#endif

namespace tutti::test {

#ifdef TUTTI_REAL_GPUS
inline WorldOptions with_gpus(const std::string& engine, std::map<std::string, std::string> more = {}) {
  // Results are compared with the CPU's, so NVIDIA's libraries must not round f32 to TF32.
  WorldOptions options{
      .timeout = 120, .watchdog = 600, .environment = {{"TUTTI_ENGINE", engine}, {"NVIDIA_TF32_OVERRIDE", "0"}}};
  for (auto& [name, value] : more) options.environment[name] = value;
  return options;
}

inline int gpu_count() { return int(visible_gpus(current_environment()).size()); }

// Only the double counts them.
inline std::uint64_t host_waits_for(int) { return 0; }
inline std::uint64_t unpinned_copies_of(int) { return 0; }
#else
inline WorldOptions with_gpus(const std::string& engine, std::map<std::string, std::string> more = {}) {
  WorldOptions options{.environment = {{"TUTTI_ENGINE", engine},
                                       {"TUTTI_CUDA_PATH", TUTTI_FAKE_CUDA},
                                       {"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6"}}};
  for (auto& [name, value] : more) options.environment[name] = value;
  return options;
}

inline int gpu_count() { return 7; }

// Calls so far that made the host wait for this GPU.
inline std::uint64_t host_waits_for(int device) { return fake_cuda_host_waits(device); }
// Copies of LibTorch so far between this GPU and memory of the host that is not pinned.
inline std::uint64_t unpinned_copies_of(int device) { return fake_cuda_unpinned_copies(device); }
#endif

inline constexpr const char* kStaged = "cpu:tutti,cuda:staged";
inline constexpr const char* kIpc = "cpu:tutti,cuda:ipc";
inline constexpr const char* kNccl = "cpu:tutti,cuda:nccl";

// For suites of worlds of up to three ranks. NCCL needs a GPU for each rank.
inline std::vector<const char*> engines() {
#ifdef TUTTI_HAS_NCCL
  if (gpu_count() >= 3) return {kStaged, kNccl};
#endif
  return {kStaged};
}

// Why a test that needs `count` GPUs does not run; empty if there are as many.
inline std::string lacks_gpus(int count) {
  if (gpu_count() >= count) return {};
  return "needs " + std::to_string(count) + " GPUs, and this machine has " + std::to_string(gpu_count());
}

inline std::string name_of_engine(const char* engines) {
  const std::string text = engines;
  return text.substr(text.rfind(':') + 1);
}

// `rank` waits until every other rank has come here.
inline void await_all(const Group& world, int rank) {
  std::uint8_t here = 0;
  if (world.rank() != rank) return send(world, std::span<const std::uint8_t>(&here, 1), rank);
  for (int other = 0; other < world.size(); ++other)
    if (other != rank) recv(world, std::span(&here, 1), other);
}

// SIGKILL for `victim`, when the others have ended their calls before this one: a rank that is through first and dies
// would else be found dead in those.
inline void kill_after_all(Group& world, int victim) {
  await_all(world, victim);
  if (world.rank() == victim) ::kill(::getpid(), SIGKILL);
}

// The sentence of a call; empty if it throws nothing.
template <class Act>
std::string sentence_of(const Act& act) {
  try {
    act();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

inline void expect_words(const std::string& text, const std::string& words) {
  check(text.find(words) != std::string::npos, "expected \"", words, "\" in: ", text.empty() ? "no error" : text);
}

}  // namespace tutti::test
