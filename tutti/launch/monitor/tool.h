#pragma once
// A small program of the system (addr2line, gdb) that is asked for something and has a limit.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/launch/agent/poll_set.h"
#include "tutti/launch/process.h"

namespace tutti {

// Runs beside the agent's loop. Its output is taken; what it says on standard error is not. Whoever runs it reaps it
// (Workers::reap() takes strangers as well).
class Tool {
 public:
  // None where there is no such program, or it could not be started.
  static std::optional<Tool> start(const std::string& name, std::vector<std::string> arguments, Deadline deadline);

  // Until over(): for a poll loop.
  void listen(PollSet& events);
  // It has closed its output, or its time is up: then it is killed.
  bool over();
  const std::string& output() const { return output_; }

  // Waits for its end, in place of a poll loop.
  std::string finish() &&;

 private:
  Tool(ChildProcess process, Deadline deadline) : process_(std::move(process)), deadline_(deadline) {}
  void read();
  void take();

  ChildProcess process_;
  Deadline deadline_;
  std::string output_;
};

}  // namespace tutti
