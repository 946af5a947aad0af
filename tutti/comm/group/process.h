#pragma once
// What all groups of one rank share: who the ranks of the world are and where, and the ways to them. Built by
// runtime/init.cc (or comm/inproc_world.cc, where ranks are threads) and kept alive by the groups made from it.
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/group/group_memory.h"
#include "tutti/comm/group/progress_thread.h"
#include "tutti/comm/heap.h"
#include "tutti/comm/plans/network.h"
#include "tutti/store/store.h"
#include "tutti/trace/flight/recorder.h"
#include "tutti/transport/shm/host.h"
#include "tutti/transport/tcp/tcp_transport.h"

namespace tutti {

struct Process {
  struct Rank {
    int node = 0;  // numbered by the lowest rank on it
    int local_rank = 0;
    int agent = 0;            // of the launcher that started it on its node, numbered by the lowest rank over all nodes
    int machine_rank = 0;     // among all ranks of its machine, whether they share memory or not
    std::string tcp_contact;  // empty: not reachable by TCP
  };

  Process() = default;
  ~Process();
  Process(const Process&) = delete;

  // In a process that was forked from the rank's: it must not touch anything of this, nor destroy it.
  bool is_copy() const { return ::getpid() != pid_; }

  int rank = 0;              // in the world
  std::vector<Rank> world;   // by global rank
  int ranks_on_machine = 1;  // that share its cores, be it in other containers
  int cores_of_ranks = 1;    // that these may use, all of them together
  Duration collective_timeout = std::chrono::minutes(10);
  Duration hang_warning = std::chrono::seconds(30);
  Duration farewell_timeout = std::chrono::seconds(10);
  std::string engine_name = "tutti";   // who carries CPU memory: tutti, gloo, mpi
  std::string cuda_engine = "staged";  // who carries the memory of GPUs: staged, nccl
  std::string address = "127.0.0.1";   // under which the other ranks reach this one
  std::string algorithm;               // TUTTI_ALGORITHM: "" = choose; "ring", ... = plans over links even on one host

  std::optional<LinkCost> given_network;  // TUTTI_NETWORK, of rank 0: what is between the hosts, not to be measured
  Network network;                        // what plans are chosen by, the same on every rank; made with the world

  std::unique_ptr<Store> store;            // null in a world of one
  std::unique_ptr<Store> launcher;         // where tutti run tells of a fault; null without it
  std::shared_ptr<void> keep_alive;        // what the store needs: the server, on the rank that serves it
  std::unique_ptr<ProgressPage> page;      // what this rank does, for its agent; null: nobody asks for it
  std::unique_ptr<FlightRecorder> flight;  // null: off; some of it lies in the page
  std::unique_ptr<Host> host;              // null where no other rank shares this machine's memory
  std::unique_ptr<Heap> heap;              // in host->arena()
  LeftGroups left_groups;
  std::unique_ptr<TcpTransport> tcp;
  // Instead, where ranks are threads: this rank's end of a link to a global rank of another host, of those that have
  // the same channel on both.
  std::function<std::unique_ptr<Link>(int peer, std::uint64_t channel)> modelled_link;
  std::unique_ptr<ProgressThread> engine;
  bool serves_store = false;       // on this rank
  std::function<void()> farewell;  // leaves the job; called once, at the end

  // The handles of one group. The world is left with the last of them: `unwinding` if an exception drives this rank
  // out.
  void add_member() { members_.fetch_add(1); }
  void remove_member(bool unwinding);

  // How much an error says about what really happened.
  enum class Evidence {
    kCause,  // seen here, and nothing else led to it
    kLoss,   // a peer is gone: who started it may know why
    kEcho,   // another rank of the group has ended it and is about to tell why
  };
  // The sentence of the job's root cause, for an error of the group with this id; empty if `mine` is all that is known.
  // Tells `mine` to the others where it is the first. Blocks a few seconds at most. Ranks tell of their errors in the
  // store under "error" (the first of the job) and "error/GROUP" (the first of a group), the launcher of a rank that
  // ended badly under "fault".
  std::string root_cause(const Error& mine, std::uint64_t group, Evidence evidence);
  // A rank that is known to be gone, so that nobody waits for its goodbye.
  void lost(int global_rank);
  std::vector<int> lost_ranks() const;
  // Writes the flight record, if there is one; a record that cannot be written is told of, and no error.
  void write_flight(FlightRecorder::Why why, const std::string& reason);
  // A fault arrived by itself (from the launcher, or from another rank). Ends every group.
  void fault_arrived(const std::string& text);
  // The fault that arrived, if any. Any thread.
  bool has_fault() const { return has_fault_.load(std::memory_order_acquire); }
  std::string fault() const;

 private:
  void leave(bool unwinding);

  const pid_t pid_ = ::getpid();
  std::atomic<int> members_{0};
  std::atomic<bool> left_{false};
  mutable Mutex fault_mutex_;
  std::vector<int> lost_ TUTTI_GUARDED_BY(fault_mutex_);
  std::string fault_ TUTTI_GUARDED_BY(fault_mutex_);
  std::atomic<bool> has_fault_{false};
};

}  // namespace tutti
