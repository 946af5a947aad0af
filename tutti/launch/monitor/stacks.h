#pragma once
// The stacks of ranks that hang: by eu-stack or gdb where they are installed and let in, by what a rank tells of itself
// at SIGUSR2, and by what the kernel says its threads wait for.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/monitor/process_facts.h"
#include "tutti/launch/monitor/tool.h"
#include "tutti/trace/progress/reader.h"

namespace tutti {

// Gathers beside the agent's loop, with a limit.
class Stacks {
 public:
  struct Target {
    int rank = 0;
    pid_t pid = -1;
    ProgressReader page;
  };
  // Asks every rank that will not die of it (SIGUSR2, which also makes it write its flight record).
  Stacks(std::vector<Target> targets, Duration limit);

  void listen(PollSet& events);
  // Goes on; true once all is there, or the time is up.
  bool over();
  // Its main thread, for the report. The names of functions are looked up here, which takes a while for large programs.
  std::vector<std::string> short_stack(int rank, Deadline deadline) const;
  // Of one rank, for a file: all that was learned, and its short stack.
  std::string text_of(int rank, const std::vector<std::string>& short_stack) const;

 private:
  void start_more();

  std::vector<Target> targets_;
  std::vector<std::uint32_t> looks_before_;
  std::vector<bool> asked_;
  Deadline deadline_;
  Clock::time_point look_until_;
  std::size_t next_ = 0;
  std::map<int, std::unique_ptr<Tool>> running_;  // by rank; a Tool stays where it is while it is listened to
  std::map<int, std::string> outputs_;
  std::map<int, std::vector<std::string>> waits_;
};

}  // namespace tutti
