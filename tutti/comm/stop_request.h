#pragma once
// The request that this process saves its state and exits: SIGTERM or SIGUSR1, from its agent, or from the program
// itself. With Group::should_stop() all ranks see it at the same step.

namespace tutti {

class Group;

// Installs handlers for SIGTERM and SIGUSR1, except where the program has its own (which may call request_stop()). Acts
// once per process; should_stop() calls it. `has_agent`: tutti run ends a rank that does not exit. Without an agent, a
// second signal that comes more than a second after the first ends the process at once with 128 + its number.
void listen_for_stop(bool has_agent);
void listen_for_stop(const Group& world);
// Has the effect of such a signal. Async-signal-safe, any thread.
void request_stop(int signal);
// The number of the first signal; 0: none. Any thread.
int stop_requested();

}  // namespace tutti
