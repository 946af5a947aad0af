#pragma once
// What another process on this host is doing.
#include <sys/types.h>

namespace tutti {

// Stopped by a signal (SIGSTOP, SIGTSTP) or a debugger. False if there is no such process.
bool is_suspended(pid_t pid);

}  // namespace tutti
