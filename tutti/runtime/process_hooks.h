#pragma once
// What init() installs in the process of a rank: the progress page that its agent reads, signal handlers that leave
// stacks in that page, and a handler for exceptions that nothing catches.
#include <memory>

#include "tutti/base/error.h"
#include "tutti/trace/progress/page.h"

namespace tutti::runtime {

// The page behind TUTTI_PROGRESS_FD, or a private one where no agent has made any. A page that cannot be opened is
// reported once and is no error. Once a process: the agent may from then on read the stacks of this process, and
// keep_last_stacks() is called.
std::unique_ptr<trace::ProgressPage> open_progress();

// From here on a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS) without a handler of the program
// leaves the stack of its thread in page.layout().crash, and then ends the process as it would have (core dump
// included). Once a process; the page is never destroyed.
void keep_last_stacks(trace::ProgressPage& page);

// Writes the message about this process's failure to that page, and to the file of TORCHELASTIC_ERROR_FILE.
void leave_last_words(const char* message);

// SIGUSR2 asks a rank for its flight record. Takes the signal, unless the program has a handler of its own (which may
// call write_flight_record(), from a thread and not from the handler). Once a process; every call returns the same
// descriptor, which becomes readable (eventfd_read) after the signal. -1: SIGUSR2 is the program's. From here on the
// signal does not end the process. It also leaves the stack of the thread it interrupts in page.layout().look.
int flight_signal();

// Installs a std::terminate handler, once. An uncaught tutti::Exception, of any thread, is printed on standard error
// and ends the process: code 2 for wrong usage, 4 if the ranks did not find each other, else 1; instead of "terminate
// called after throwing an instance of ..." and a core. Streams of stdio are flushed, destructors do not run. Other
// exceptions go to the previous handler.
void end_uncaught_exceptions_with_a_sentence();

}  // namespace tutti::runtime
