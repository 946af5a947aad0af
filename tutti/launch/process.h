#pragma once
// Starting and ending processes so that none is left behind. Call these from the main thread only: the parent-death
// signal follows the thread that forked.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti {

// How a process ended.
struct Exit {
  int code = 0;    // of exit(); valid if signal is 0
  int signal = 0;  // that killed it
  bool dumped = false;

  bool ok() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal ? 128 + signal : code; }
};
Exit exit_of(int wait_status);
// "exited with code 3", "was killed by SIGSEGV (segmentation fault), core dumped", "ended well"
std::string to_string(const Exit& exit);
// "SIGTERM"; "signal 42" for those without a name.
std::string signal_name(int signal);

struct ProcessSpec {
  std::string path;                              // for execve()
  std::vector<std::string> arguments;            // with argv[0]
  std::vector<std::string> environment;          // "NAME=value"
  int input = -1;                                // becomes its standard input; -1: /dev/null
  std::vector<int> inherited;                    // descriptors that stay open under their number
  std::vector<int> cpus;                         // it may run on these alone; empty: as this process
  Duration patience = std::chrono::seconds(30);  // for execve(): a dead network mount answers nothing
};
struct ChildProcess {
  pid_t pid = -1;  // also its process group
  Clock::time_point started = now();
  Fd pidfd;   // readable once it has ended; none where the system gives none: SIGCHLD tells then
  Fd output;  // reading ends of its standard output and error, non-blocking
  Fd errors;
};
// Forks and executes: a process group of its own, SIGKILL when this process dies, signals as a fresh program expects
// them. An execve() that fails is an error here, not an exit code of the child; one that does not come back is a
// kTimeout, and the child, killed, is left to be reaped when it can be.
Result<ChildProcess> start_process(const ProcessSpec& spec);

// For the start of a program that will start others: descriptors 0 to 2 exist (else our own would take their numbers),
// and the end of a child is not ignored, whatever this process inherited.
void make_sane();
// Raises the soft limit of open files so far as the hard one lets it; workers inherit it.
void want_descriptors(std::size_t count);

// This process becomes the parent of every descendant whose own parent dies, so that double forks and setsid() do not
// hide.
Status become_subreaper();
struct Survivor {
  pid_t pid = -1;
  std::string name;
};
// Kills every descendant and reaps it. Needs become_subreaper(): whoever loses its parent comes to us, so nobody
// escapes between two looks. Returns those ended; a process that SIGKILL cannot end by the deadline (waiting in the
// kernel) is a kTimeout that names it and what it waits for.
Result<std::vector<Survivor>> end_descendants(Deadline deadline);

}  // namespace tutti
