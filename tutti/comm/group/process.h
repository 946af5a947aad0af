#pragma once
// What all groups of one rank share: which ranks the world has, where they are, and how they are reached. Built by
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
#include "tutti/base/thread.h"
#include "tutti/comm/group/progress_thread.h"
#include "tutti/comm/heap.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/shared_memory/group_memory.h"
#include "tutti/store/store.h"
#include "tutti/trace/flight/recorder.h"
#include "tutti/transport/shm/host.h"
#include "tutti/transport/tcp/tcp_transport.h"

namespace tutti::comm {

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

  // In a process that was forked from the rank's, which must neither use this object nor destroy it.
  bool is_copy() const { return ::getpid() != pid_; }

  int rank = 0;              // in the world
  std::vector<Rank> world;   // by global rank
  int ranks_on_machine = 1;  // that share its cores, in other containers too
  int cores_of_ranks = 1;    // that these ranks may use together
  Duration collective_timeout = std::chrono::minutes(10);
  Duration hang_warning = std::chrono::seconds(30);
  Duration farewell_timeout = std::chrono::seconds(10);
  std::string engine_name = "tutti";  // carries CPU memory: tutti, gloo, mpi
  std::string cuda_engine = "ipc";    // carries GPU memory: ipc, staged, nccl
  std::string address = "127.0.0.1";  // where the other ranks reach this one
  std::string algorithm;              // TUTTI_ALGORITHM: "" = choose; "ring", ... = plans over links even on one host

  std::optional<LinkCost> given_network;  // TUTTI_NETWORK of rank 0: the network between hosts; none: it is measured
  Network network;                        // by which plans are chosen, the same on every rank; made with the world

  std::unique_ptr<Store> store;                   // null in a world of one
  std::unique_ptr<Store> launcher;                // where tutti run reports a fault; null without it
  std::shared_ptr<void> keep_alive;               // what the store needs: the server, on the rank that serves it
  std::unique_ptr<trace::ProgressPage> page;      // what this rank does, for its agent; null without one
  std::unique_ptr<trace::FlightRecorder> flight;  // null: off; some of it is in the page
  std::unique_ptr<transport::Host> host;          // null where no other rank shares this machine's memory
  std::unique_ptr<Heap> heap;                     // in host->arena()
  comm::LeftGroups left_groups;
  std::unique_ptr<transport::TcpTransport> tcp;
  // Instead, where ranks are threads: this rank's end of a link to a global rank of another host, of those that have
  // the same channel on both.
  std::function<std::unique_ptr<transport::Link>(int peer, std::uint64_t channel)> modelled_link;
  std::unique_ptr<ProgressThread> progress_thread;
  bool serves_store = false;  // on this rank
  // Concludes the failures of groups (failure.h) where no other thread can be had. The first group of several ranks
  // keeps its thread.
  BackgroundTasks spare_thread;
  std::function<void()> farewell;  // leaves the job; called once, at the end

  // Handles of groups. The rank leaves the world with the last one; `unwinding`: because of an exception.
  void add_member() { members_.fetch_add(1); }
  void remove_member(bool unwinding);

  // How much an error says about what really happened.
  enum class Evidence {
    kCause,  // seen here, and nothing else led to it
    kLoss,   // a peer is gone: its launcher may know why
    kEcho,   // another rank has ended the group and is about to report why
  };
  // Sets the cause of an error of the group with this id to the sentence of the job's root cause; empty if nothing
  // better than the error is known. If it is the first error, reports it to the others. Blocks for some seconds at
  // most. In the store, ranks report errors under "error" (the first of the job) and "error/GROUP" (the first of a
  // group); in its own, the launcher reports a rank that ended badly under "fault". With the first error of a group
  // come its late and its lost ranks: an error that has neither gets both, any other gets the lost ones.
  void add_root_cause(Error& error, std::uint64_t group, Evidence evidence);
  // Notes that a rank is gone, so that its goodbye is not waited for.
  void lost(int global_rank);
  // What a rank sets in the store when it leaves. The rank that serves the store waits for that of every other rank.
  static std::string goodbye_key(int global_rank) { return "goodbye/" + std::to_string(global_rank); }
  std::vector<int> lost_ranks() const;
  // Says goodbye for a lost rank: the rank that serves the store may know of the loss from this rank alone.
  void leave_for(int lost_rank);
  // Writes the flight record, if there is one; one that cannot be written is logged.
  void write_flight(trace::FlightRecorder::Why why, const std::string& reason);
  // The launcher or another rank reports a fault. Ends every group.
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

}  // namespace tutti::comm
