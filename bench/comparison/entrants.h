#pragma once
// Who takes part in a comparison, and how each is started.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/collectives/measure.h"
#include "bench/comparison/figures.h"
#include "bench/comparison/two_hosts.h"

namespace tutti::bench {

// What all entrants do in a turn.
struct Task {
  int ranks = 2;
  std::vector<Item> items;
  Method method;
  bool private_memory = false;         // ours; the peers know no other
  bool two_hosts = false;              // half of the ranks on each
  std::string congestion;              // of the peers' sockets; "": the system's
  std::vector<std::string> our_words;  // further arguments of `tutti bench` (--engine, --transport, ...)
};

struct Entrant {
  std::string key;   // "tutti", "mpi", ...
  std::string name;  // for people
  // What it can do of a task; an empty result means that it has no part in it.
  std::function<std::vector<Item>(const Task&)> part;
  std::function<Result<PeerFigures>(const Task&, const std::vector<Item>& part)> run;
};

inline constexpr const char* kOurs = "tutti";
// The keys that exist, ours left out: mpi, mpi_default (Open MPI without the settings that suit it), gloo, bare and
// bare_wire (peers/bare.cc, bare_wire.cc), iperf3 (its time for the bytes of a broadcast).
const std::vector<std::string>& rival_keys();

// `hosts` may be null, where no task is on two hosts, and outlives the entrants.
Entrant our_entrant(TwoHosts* hosts);
// An error says what is not installed.
Result<Entrant> rival(const std::string& key, TwoHosts* hosts);

// `tutti ARGUMENTS` as ranks of two hosts; prints what rank 0 says. Exit code.
Result<int> run_on_two_hosts(int ranks, const std::vector<std::string>& arguments);

// `tutti bench ... --as-rank` as mpirun starts it: path of mpirun and its arguments before the program.
Result<std::vector<std::string>> mpirun_command(int ranks);
// What mpirun has to find in its environment where root starts it.
void permit_root(Environment& environment);
std::string own_path();  // of this program

}  // namespace tutti::bench
