#pragma once
// tutti::init(): from "a process was started" to "a world Group": which rank is this, where are the others, how are
// bytes transferred.
#include <optional>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/comm/group.h"
#include "tutti/rendezvous/foreign.h"

namespace tutti {

// Everything is optional. Each value is taken from the URL, then from here, then from the environment; if two of them
// contradict each other the error names both.
struct Options {
  std::string url;                // "env://", "tcp://host:port?rank=0&world_size=2", "file:///path?..."; TUTTI_INIT
  std::optional<int> rank;        // RANK
  std::optional<int> world_size;  // WORLD_SIZE
  std::string transport;          // "auto", "shm", "tcp"; TUTTI_TRANSPORT
  // "tutti", "gloo", "mpi", or by device: "cpu:gloo,cuda:nccl"; TUTTI_ENGINE. See docs/how-to/choose-an-engine.md.
  std::string engine;
  std::optional<Duration> join_timeout;        // 5 min; TUTTI_JOIN_TIMEOUT
  std::optional<Duration> collective_timeout;  // 10 min; TUTTI_TIMEOUT
  std::optional<Duration> leave_timeout;       // 10 s; TUTTI_LEAVE_TIMEOUT
};

// The world. Started by tutti run, torchrun, mpirun or srun, or by hand with variables, it joins the others; alone it
// is a world of one. Throws Exception; an uncaught one ends the process with its message and an exit code
// (runtime/process_hooks.h). Under tutti run it makes stdout line-buffered. Call once in a process. The world is left
// (a goodbye with a deadline) when the last Group made from it is gone.
Group init(const Options& options = {});
Result<Group> try_init(const Options& options = {});

// A world of ranks that another library has counted, in a process that belongs to it (rendezvous/foreign.h). Does not
// touch the process: no signal handlers, no std::terminate handler, no files; under tutti run, what its agent needs.
// May be called again for further worlds, at the same time too. Options::url, rank and world_size are not used.
Result<Group> init_as_guest(const rendezvous::ForeignStore& store, const rendezvous::ForeignWorld& world,
                            const Options& options = {});

// Waits until all callbacks of Work::on_done() that are due in this process have returned, but at most `limit`: then
// false. Calls none after that. For an interpreter that is about to exit.
bool end_callbacks(Duration limit);

// kUsage: a TUTTI_ variable of this process has a value that init() rejects on every rank. A launcher asks first.
Status check_variables();

}  // namespace tutti
