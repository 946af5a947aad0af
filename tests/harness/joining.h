#pragma once
// Ranks that only join(): forked processes, each with an environment of its own, which report how it went.
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/rendezvous/join.h"

namespace tutti::testing {

// What a rank said.
struct Report {
  bool ok = false;
  int pid = 0;
  std::string error;  // to_string() of the error
  std::string log;    // what it wrote to standard error
  int rank = -1, world_size = -1, local_rank = -2;
  std::string job, local_host, store_address, started_by, fingerprint;
  bool serves = false;
  std::string extra;  // of Start::after
};

struct Start {
  Environment environment;  // the whole of it; XDG_RUNTIME_DIR is added
  rendezvous::JoinOptions options;
  std::function<void()> before = {};  // in the rank's process, before join()
  std::function<std::string(rendezvous::Membership&)> after =
      {};  // after it; the default meets the others once more in the store
};

// A folder and the processes of one test; both are gone at the end.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;

  int start(const Start& start);  // its index
  Report wait(int index);
  void kill(int index);
  int pid(int index) const { return processes_.at(std::size_t(index)).pid; }
  // Starts all and waits for all.
  std::vector<Report> run(const std::vector<Start>& starts);
  // Any other process: runs `body`, which may write lines to the descriptor it is given; read_line() reads one. It is
  // killed at the end.
  int start_helper(const std::function<void(int)>& body);
  std::string read_line(int index);

  const std::string& folder() const { return folder_; }

 private:
  struct Process {
    int pid = -1;
    Fd pipe;
    std::string log_file;
  };
  std::string folder_;
  std::vector<Process> processes_;
};

// A TCP port of 127.0.0.1 that stays ours: bound without listening, so that a rank may listen there and no stranger is
// given it.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

 private:
  Fd fd_;
  int number_ = 0;
};

}  // namespace tutti::testing
