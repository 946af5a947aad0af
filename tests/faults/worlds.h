#pragma once
// Worlds in which something goes wrong, and what must be true afterwards, whatever it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/ranks.h"

namespace tutti::test {

// A way in which ranks reach one another.
struct Way {
  std::string name;         // of the test
  bool processes;           // else threads of one process
  std::string transport;    // TUTTI_TRANSPORT
  std::string algorithm;    // TUTTI_ALGORITHM
  std::string engine = {};  // TUTTI_ENGINE
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};
std::vector<Way> all_ways();
std::vector<Way> ways_of_processes();
std::vector<Way> ways_with_engines();  // of processes, over other libraries too

// A folder for the sockets and files of one world; the test fails if anything is left in it.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs a world in which a call fails. The limits are long: a rank that learns of its trouble only by a limit hangs, and
// is ended by the watchdog. Checks that nothing stays behind: processes, descriptors, sockets.
struct FaultOptions {
  double timeout = 1000;
  double leave_timeout = 10;
  std::map<std::string, std::string> environment = {};
};
std::vector<Outcome> run_world(const Way& way, int size, const RankBody& body, const FaultOptions& options = {});

// For bodies: the error of a call that has to fail, after checking that every later call gives the same at once. Throws
// it.
[[noreturn]] void expect_failure(const Group& world, const std::function<void()>& call);

// The last clause of an error: what happened first in the job, as this rank was told.
std::string root_cause(const std::string& error);
// All ranks but `culprit` (-1: all) ended with an Exception, nobody hung, and they tell one root cause, which is
// returned.
std::string expect_one_cause(const std::vector<Outcome>& outcomes, int culprit);

// The memory of one buffer: in the heap that ranks share, or private.
std::shared_ptr<float[]> make_buffer(const Group& world, std::size_t count, bool heap);

// How ranks meet that nobody started: at a store that rank 0 serves, on a port that is this process's.
std::map<std::string, std::string> by_hand();

// Where each rank's process is, by rank.
std::vector<pid_t> processes_of(const Group& world);

}  // namespace tutti::test
