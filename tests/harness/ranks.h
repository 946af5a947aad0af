#pragma once
// Ranks for tests: threads over inproc, or forked processes that join through a real store. A watchdog ends a test that
// hangs and says which ranks were still at work.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/group.h"
#include "tutti/comm/inproc_world.h"

namespace tutti::test {

using RankBody = std::function<void(Group& world)>;  // throws to fail

// What became of a rank.
struct Outcome {
  std::string error;  // text of the exception; empty if none
  int exit_code = 0;  // processes only
  int signal = 0;     // processes only: that ended it
  bool hung = false;  // the watchdog had to end it
  bool ok() const { return error.empty() && exit_code == 0 && signal == 0 && !hung; }
};

struct WorldOptions {
  std::string algorithm;                        // TUTTI_ALGORITHM
  std::string transport;                        // TUTTI_TRANSPORT: processes only
  double timeout = 30;                          // seconds for each collective
  double leave_timeout = 10;                    // seconds for what is pending when the last handle goes
  double watchdog = 100;                        // seconds for the whole; four times that under a sanitizer
  std::optional<ModelledNetwork> network = {};  // threads only
  std::string flight_folder = {};               // threads only: for flight records; empty: none
  std::map<std::string, std::string> environment = {};
  std::function<std::map<std::string, std::string>(int rank)> environment_of = {};  // processes only
};

// Each returns one Outcome a rank.
std::vector<Outcome> run_threads(int size, const RankBody& body, const WorldOptions& options = {});
std::vector<Outcome> run_processes(int size, const RankBody& body, const WorldOptions& options = {});
// What went wrong, one line a rank; empty if nothing did.
std::string describe(const std::vector<Outcome>& outcomes);

// For bodies: throws with the words given.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw std::runtime_error(detail::words("check failed: ", parts...));
}

}  // namespace tutti::test
