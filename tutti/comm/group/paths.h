#pragma once
// The ways of a group to its peers, and which of them carries a call: shared memory, links, another library (Gloo,
// MPI), NCCL, or staging between a GPU and one of these.
//
//   CPU memory     a backend, if the group was opened with one
//                  else: send and recv over links of their own; collectives through shared memory where all members are
//                  on one host, by plans over links otherwise
//   GPU memory     NCCL, if the group was opened with it and it has the verb; else collectives where all members are on
//                  one host, and large messages between two ranks of one host, are copied directly between GPUs; else
//                  staged through CPU memory
//
// Threads: open() before any call; start...() by the driver of the group; the rest by any thread.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/backends/backend.h"
#include "tutti/comm/cuda/calls.h"
#include "tutti/comm/group/flight.h"
#include "tutti/comm/group/peers.h"
#include "tutti/comm/links/planned_calls.h"
#include "tutti/comm/links/point_to_point.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/request.h"
#include "tutti/comm/shared_memory/direct.h"

namespace tutti::comm {

// A call on CPU memory in a group of one: a copy, or the products with the factor of a premultiplied sum.
void run_alone(const Request& request);

class Paths {
 public:
  // Gathers a text from every member, by rank.
  using GatherTexts = std::function<Result<std::vector<std::string>>(const std::string& mine)>;

  // `limit`: of a call. The references outlive the object.
  Paths(Process& process, const GroupSpec& spec, const Peers& peers, Duration limit);
  ~Paths();
  Paths(const Paths&) = delete;

  // Every member calls; `gather` is called once, on every member.
  Status open(const GatherTexts& gather, Deadline deadline);
  // Instead, for a group of which `backend` carries all CPU memory.
  void carry_by(std::unique_ptr<comm::Backend> backend) { backend_ = std::move(backend); }

  // Starts a call on CPU memory, or on a GPU: `ready` is where the caller's stream stood.
  Result<comm::StartedOperation> start(const Request& request, std::uint64_t sequence);
  Result<comm::StartedOperation> start_on_device(const Request& request, std::uint64_t sequence, cuda::Event ready);
  // Notes where the caller's stream stands, in the caller's thread: what it puts there later is not waited for.
  Result<cuda::Event> mark(const Request& request) const { return cuda_.mark(request); }
  // In a group of one, on a GPU.
  Status run_alone_on_device(const Request& request);
  // The group has failed: what is under way on any path ends soon.
  void abort();

  bool is_direct() const { return direct_ != nullptr; }  // collectives go through shared memory
  comm::DirectChannel* direct() const { return direct_.get(); }
  const comm::Selector* selector() const { return selector_.get(); }  // null unless plans over links carry collectives
  FlightPath flight_path(const Request& request) const;
  const char* device_engine(const Request& request) const {
    return cuda_.is_by_nccl(request) ? "nccl" : cuda_.is_by_ipc(request) ? "ipc" : "staged";
  }
  // Whether a collective that differs from the peers' may leave all of them waiting.
  bool may_hide_mismatch() const { return !direct_ || cuda_.has_nccl(); }
  std::string device() const;                                               // where this rank computes: "cpu", "cuda:0"
  std::atomic<std::uint32_t>* poison_word() const { return poison_word_; }  // in the memory of this host; null: none
  void mark_peer_gone(int rank) { peer_gone_[std::size_t(rank)]->store(true); }  // of this host: its links end

 private:
  int rank() const { return spec_.rank; }
  int size() const { return spec_.size(); }
  const Process::Rank& member(int rank) const {
    return process_.world[std::size_t(spec_.global_ranks[std::size_t(rank)])];
  }

  // paths.cc
  cuda::NotedMessages noted_messages();
  Status open_control_block(const GatherTexts& gather);
  Status open_links(Deadline deadline);
  Status open_network_links(int purpose, Deadline deadline);
  void open_shared_links(int purpose);
  Status open_backend_for_cpu(Deadline deadline);
  Status learn_network(Deadline deadline);
  void open_plans();
  comm::BackendSetup backend_setup(const std::string& engine, Deadline deadline);
  Error opening_failed(const std::string& engine, Error error) const;
  Error with_cause(Error error) const;
  // paths_gpu.cc
  Status open_nccl(Deadline deadline);
  Result<int> nccl_device() const;
  Result<std::string> nccl_probe(const comm::BackendSetup& setup, int device) const;
  Result<std::unique_ptr<comm::Operation>> start_for_device(const Request& request, std::uint64_t sequence);

  Process& process_;
  const GroupSpec& spec_;
  const Peers& peers_;
  const Duration limit_;
  comm::Hosts hosts_;      // of the members; none in a group of one
  std::vector<int> here_;  // members on this host
  std::atomic<std::uint32_t>* poison_word_ = nullptr;
  comm::GroupMemory memory_;
  std::unique_ptr<comm::DirectChannel> direct_;
  std::unique_ptr<comm::Backend> backend_;  // carries all CPU memory, if there is one
  // start...() use cuda_, planned_ and point_to_point_ under the driver lock, which is the queue's. No annotation names
  // it: the queue is made of the paths, and in a group of one there is no driver, so alone_mutex_ is held around cuda_.
  cuda::Calls cuda_;  // loads nothing before the first call on a GPU
  Mutex alone_mutex_;
  std::vector<std::unique_ptr<transport::Link>> links_[2];  // by purpose: collectives, send and recv
  std::vector<transport::Link*> link_pointers_[2];
  std::unique_ptr<comm::Selector> selector_;
  std::unique_ptr<comm::PlannedCalls> planned_;
  std::unique_ptr<comm::PointToPoint> point_to_point_;
  std::vector<std::unique_ptr<std::atomic<bool>>> peer_gone_;
};

}  // namespace tutti::comm
