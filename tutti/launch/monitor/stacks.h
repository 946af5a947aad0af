#pragma once
// The stacks of ranks. Addresses that a rank left in its progress page become functions, files and lines; the stacks of
// ranks that hang are gathered from the ranks themselves, from a debugger and from the kernel.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/launch/agent/events.h"
#include "tutti/launch/process.h"
#include "tutti/trace/progress/reader.h"

namespace tutti::launch {

// A program of the system (addr2line, eu-stack, gdb) with a time limit, beside the agent's loop. Its standard output is
// collected, its standard error discarded. The caller reaps it (Workers::reap() reaps every child).
class Tool {
 public:
  // None if there is no such program, or it could not be started.
  static std::optional<Tool> start(const std::string& name, std::vector<std::string> arguments, Deadline deadline);

  // For a poll loop, until over().
  void listen(PollSet& events);
  // It has closed its output, or its time is up: then it is killed.
  bool over();
  const std::string& output() const { return output_; }

  // Waits for its end, without a poll loop.
  std::string finish() &&;

 private:
  Tool(ChildProcess process, Deadline deadline) : process_(std::move(process)), deadline_(deadline) {}
  void read_output();
  void read_errors();

  ChildProcess process_;
  Deadline deadline_;
  std::string output_;
};

// The file that an address is mapped from, and the offset in the file.
struct FileOffset {
  std::string file;  // empty: none
  std::uint64_t offset = 0;

  bool operator==(const FileOffset&) const = default;
};
// From the text of /proc/PID/maps.
FileOffset find_in_maps(const std::string& maps, std::uint64_t address);
// The address that the linker gave to this byte of an ELF file; the offset itself if that is not known.
std::uint64_t linked_address(const std::string& file, std::uint64_t offset);

// The output of addr2line -a -f -C -i, as the lines for each address: "step(int) at train.cc:212", then the functions
// it was inlined into; empty for an unknown address.
std::vector<std::vector<std::string>> parse_addr2line(const std::string& output);

// Removes from such lines, the innermost first, those on top that only end the process ("raise", "abort" ...) and those
// at the bottom that start the program or a thread. The first remaining line is never removed.
std::vector<std::string> of_the_program(std::vector<std::string> lines);

// A line for each frame, the innermost first: "step(int) at train.cc:212", "in libfoo.so, +0x1234". Needs addr2line
// (binutils) for the names; without it, or after the deadline, files and offsets.
std::vector<std::string> backtrace_lines(const trace::ProgressFrames& frames, Deadline deadline);

// The stacks of all ranks of a node, gathered beside the agent's loop, with a time limit.
class Stacks {
 public:
  struct Target {
    int rank = 0;
    pid_t pid = -1;
    trace::ProgressReader page;
  };
  // Sends SIGUSR2 to every rank that does not die of it: the rank then also writes its flight record.
  Stacks(std::vector<Target> targets, Duration limit);

  void listen(PollSet& events);
  // Continues; true once all stacks are there, or the time is up.
  bool over();
  // The main thread's stack, for the report. Looks up the names of functions, which takes a while for large programs.
  std::vector<std::string> short_stack(int rank, Deadline deadline) const;
  // Everything about one rank, for a file, with its short stack.
  std::string text_of(int rank, const std::vector<std::string>& short_stack) const;

 private:
  void start_more();

  std::vector<Target> targets_;
  std::vector<std::uint32_t> looks_before_;  // trace::ProgressFrames::number of each page
  std::vector<bool> asked_;
  Deadline deadline_;
  Clock::time_point answers_until_;
  std::size_t next_ = 0;
  std::map<int, std::unique_ptr<Tool>> running_;  // by rank; a Tool must not move while it is listened to
  std::map<int, std::string> outputs_;
  std::map<int, std::vector<std::string>> waits_;
};

}  // namespace tutti::launch
