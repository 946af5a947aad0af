#pragma once
// SIGUSR2 asks a rank for its flight record.

namespace tutti {

// Takes SIGUSR2 for that, unless the program has a handler of its own (which may call write_flight_record(), from a
// thread and not from the handler). Once a process; the same descriptor at every call: it can be read (eventfd_read)
// after the signal came. -1: SIGUSR2 is the program's. The signal ends the process no more from here on.
int flight_signal();

}  // namespace tutti
