#pragma once
// The members of a group as one rank sees them: which of them share its host, which have left or died, and which are
// stopped.
//
// A rank of this host that leaves says goodbye on a socket, and one that dies closes it (transport/shm/host.h). A rank
// of another host leaves a note in the store. Threads: any.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group/process.h"

namespace tutti::comm {

struct GroupSpec {
  std::string name;
  std::uint64_t id = 1;  // the same on every rank; links are told apart by it
  int rank = 0;
  std::vector<int> global_ranks;  // by rank
  Duration limit{};               // of a call; 0: the limit of the process

  int size() const { return int(global_ranks.size()); }
};

// Why a group has to end.
struct Trouble {
  Error error;
  std::optional<Process::Evidence> evidence = {};  // none: Peers::explain() decides
  bool is_overdue = false;  // a call has reached its deadline: Diagnosis adds what is known of the ranks it waits for
};

class Peers {
 public:
  // Both outlive the object.
  Peers(Process& process, const GroupSpec& spec);

  bool is_here(int rank) const { return node_of(rank) == process_.world[std::size_t(process_.rank)].node; }
  bool are_all_here() const { return are_all_here_; }

  // How a member of this host ended; none if it runs, or is on another host.
  std::optional<Trouble> departure_of(int peer) const;
  // The departure of any member. A rank whose connection has just ended may become known only now: waits for 200 ms at
  // the most.
  std::optional<Trouble> departure_of_anybody() const;
  // A member has died or fled, or the job has failed. A member that left in order has done its part.
  bool is_anybody_lost() const;
  bool has_left(int peer) const;  // in order; may call the store

  // Adds the evidence to an error of an operation. For a lost peer of this host, the error of its departure: a link
  // through shared memory knows only that the peer is gone.
  Trouble explain(Error error) const;

  // The note for ranks of other hosts, and what it adds to an error that says only that the connection ended.
  void announce_leaving(bool unwinding) const;
  void add_note_of_leaving(Error& error) const;

  // "; rank 3 (pid 12) is stopped (SIGSTOP or a debugger)" for each such rank of this host. "global rank 3" for one
  // that is not in this group: a member may wait for it elsewhere.
  std::string stopped_text() const;

  // A key of this rank, or of another one, in the store.
  std::string store_key(const char* what, int rank) const;

 private:
  int node_of(int rank) const { return process_.world[std::size_t(spec_.global_ranks[std::size_t(rank)])].node; }
  std::string note_of_leaving(int peer) const;  // empty: none

  Process& process_;
  const GroupSpec& spec_;
  bool are_all_here_ = true;
};

}  // namespace tutti::comm
