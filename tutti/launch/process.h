#pragma once
// Finding a program, starting it, and ending processes so that none is left behind. Call these from the main thread
// only: the parent-death signal follows the thread that forked.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::launch {

// How a process ended.
struct Exit {
  int code = 0;    // of exit(); valid if signal is 0
  int signal = 0;  // that killed it
  bool dumped = false;

  bool ok() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal ? 128 + signal : code; }
};
Exit exit_of(int wait_status);
// "exited with code 3", "was killed by SIGSEGV (segmentation fault), core dumped", "exited with code 0"
std::string to_string(const Exit& exit);
// "SIGTERM"; "signal 42" for those without a name.
std::string signal_name(int signal);

// The file for execve(): a name with a slash is a path, any other is searched in `search_path` (the value of PATH).
// Checks that the file exists, is no folder, may be executed, and that the interpreter of a script exists and may be
// executed. Errors are kUsage and say what to do.
Result<std::string> find_program(const std::string& name, const std::string& search_path);

struct ProcessSpec {
  std::string path;                              // for execve()
  std::vector<std::string> arguments;            // with argv[0]
  std::vector<std::string> environment;          // "NAME=value"
  int input = -1;                                // becomes its standard input; -1: /dev/null
  std::vector<int> inherited;                    // descriptors that stay open under their number
  std::vector<int> cpus;                         // the CPUs it may run on; empty: as this process
  Duration patience = std::chrono::seconds(30);  // for execve(), which a dead network mount does not answer
};
struct ChildProcess {
  pid_t pid = -1;  // also its process group
  Clock::time_point started = now();
  Fd pidfd;   // readable once it has ended; empty on a system without pidfds, where SIGCHLD reports it
  Fd output;  // reading ends of its standard output and error, non-blocking
  Fd errors;
};
// Forks and executes: a process group of its own, SIGKILL when this process dies, default signal handlers. An execve()
// that fails is an error here, not an exit code of the child. One that does not return is a kTimeout, and the killed
// child is left to be reaped when it can be.
Result<ChildProcess> start_process(const ProcessSpec& spec);

// For the start of a program that starts others: opens descriptors 0 to 2 if they are closed (or other files would take
// their numbers), and restores the default action of SIGCHLD, whatever this process inherited.
void reset_inherited_state();
// Raises the soft limit of open files as far as the hard limit allows; workers inherit it.
void raise_descriptor_limit(std::size_t count);

// This process becomes the parent of every descendant whose own parent dies, so double forks and setsid() hide none.
Status become_subreaper();
struct Survivor {
  pid_t pid = -1;
  std::string name;
};
// Kills every descendant and reaps it. Needs become_subreaper(): a descendant whose parent dies becomes a child of this
// process, so none escapes. Returns those that were ended. A process that SIGKILL cannot end by the deadline (it waits
// in the kernel) is a kTimeout that names it and what it waits for.
Result<std::vector<Survivor>> end_descendants(Deadline deadline);

}  // namespace tutti::launch
