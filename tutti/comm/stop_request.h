#pragma once
// The request that this process save what it has and leave: by SIGTERM or SIGUSR1, from its agent, or from the program
// itself. Group::should_stop() makes it one step of all ranks.

namespace tutti {

// Takes SIGTERM and SIGUSR1 for that, each unless the program has a handler of its own for it (which may call
// request_stop()). Once a process; should_stop() calls it. `has_agent`: tutti run watches, and it is the one to end a
// rank that does not leave; without, a second such signal, more than a second after the first, ends the process at
// once with 128 + its number.
void listen_for_stop(bool has_agent);
// The same as such a signal. Async-signal-safe, any thread.
void request_stop(int signal);
// The number of the first signal that came; 0: none. Any thread.
int stop_requested();

}  // namespace tutti
