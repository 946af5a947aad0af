#pragma once
// The nodes of a job as its scheduler describes them, for a launcher that runs once on each of them (`tutti run`),
// where schedulers.h is for a program that is a rank itself.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/error.h"

namespace tutti::rendezvous {

struct Allocation {
  enum class Others {
    kStarted,  // the scheduler has started this program on every node
    kSrun,     // this is the one script of the job; srun starts it on the others
    kSsh,      // the same, and ssh does
  };
  std::string scheduler;           // "Slurm", "PBS", "LSF", "SGE", "mpirun", "Kubernetes", for words
  std::optional<int> nodes;        // how many; none: it does not tell
  std::optional<int> node;         // which of them this is; only for kStarted
  std::vector<std::string> hosts;  // by node; empty: it does not tell
  std::vector<int> ranks;          // of each node, if the job asked for a number; else empty
  std::string first_host;          // an address of node 0; empty: it does not tell
  std::string job;                 // a name that no other job of this user has; empty: it does not tell
  Others others = Others::kStarted;
  std::string note;  // a warning where the job has other hosts that stay unused; `nodes` and `hosts` are then open

  bool operator==(const Allocation&) const = default;
};

// Names that the environment does not have.
struct HostNames {
  std::string host;       // gethostname()
  std::string canonical;  // the full name that it resolves to; may be empty
};
// The names of this host; resolves the host name.
HostNames host_names();

// The allocation that this process is in; none outside of schedulers, where there is nothing to add (one node of which
// no number of ranks is told), and in a rank of `tutti run`. `read_file`: the text of a file. kUsage: the scheduler
// started several of these programs on this node, or its variables make no sense.
Result<std::optional<Allocation>> allocation_of(
    const Environment& environment, const HostNames& names,
    const std::function<Result<std::string>(const std::string& path)>& read_file);

// The host where mpirun runs, according to the MPI of this environment, and rank 0 with it unless hosts were chosen
// otherwise; empty: nothing.
std::string host_of_mpirun(const Environment& environment);

}  // namespace tutti::rendezvous
