#pragma once
// Worlds whose ranks find GPUs: doubles of them.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <string>

#include "tests/harness/device_memory.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {

inline WorldOptions with_gpus(const std::string& engine, std::map<std::string, std::string> more = {}) {
  WorldOptions options{.environment = {{"TUTTI_ENGINE", engine},
                                       {"TUTTI_CUDA_PATH", TUTTI_FAKE_CUDA},
                                       {"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6"}}};
  for (auto& [name, value] : more) options.environment[name] = value;
  return options;
}

inline constexpr const char* kStaged = "cpu:tutti,cuda:staged";
inline constexpr const char* kNccl = "cpu:tutti,cuda:nccl";

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
