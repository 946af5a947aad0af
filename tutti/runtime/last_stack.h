#pragma once
// Stacks that a process takes of itself, in its progress page, for the report of its agent.
#include "tutti/trace/progress/page.h"

namespace tutti {

// From here on a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS) that the program has no handler for
// leaves the stack of its thread in page.layout().crash, and then ends the process as it would have (core dump
// included). Once a process; the page is never destroyed.
void keep_last_stacks(ProgressPage& page);

// The stack of the calling thread, in page.layout().look of the page that was given above; nothing without one. For a
// signal handler, with what it got (null: unknown).
void look_at_this_stack(int signal, const void* context);

// What the process says of its failure, in the message of that page, and in the file of TORCHELASTIC_ERROR_FILE.
void leave_last_words(const char* words);

}  // namespace tutti
