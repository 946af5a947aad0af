#pragma once
// A Group: ranks that act together. It numbers, checks and starts operations. Every rank of the group makes the same
// calls in the same order (send and recv: only the two ranks concerned). A handle: copies mean the same group.
//
// Threads: any. Calls on one group from several threads are carried out in the order in which they arrive, which has to
// be the same on every rank. Different groups never block one another.
// Leaving: the last handle that goes (a Work is one too) waits for what is pending, for 10 s at the most
// (TUTTI_LEAVE_TIMEOUT), and notifies the peers that this rank leaves. If an exception unwinds the stack, it ends
// pending calls at once, which ends the group on every rank. Failure: every operation ends by its deadline. The first
// error ends the group: every later call returns that error at once, and the contents of buffers in flight are
// undefined. A rank may take some seconds to find out the root cause; other groups are not affected. A call with
// a wrong argument, such as a root that does not exist (kInvalidArgument), is refused on this rank before it starts.
// The group stays usable, and the other ranks wait for the right call.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/call_site.h"
#include "tutti/comm/request.h"
#include "tutti/comm/work.h"

namespace tutti {

namespace comm {
class GroupState;  // comm/group/group_state.h
}  // namespace comm

class Group {
 public:
  Group() = default;                                        // no group: of size 0; other calls but operator bool throw
  explicit Group(std::shared_ptr<comm::GroupState> state);  // the first handle of this group; null: no group
  explicit operator bool() const { return state_ != nullptr; }

  int rank() const;  // of this process, in this group
  int size() const;
  const std::string& name() const;            // "world", "world/tp", ...
  std::span<const int> global_ranks() const;  // by rank in this group
  int global_rank() const { return global_ranks()[rank()]; }
  int local_rank() const;  // among the members that one launcher started on this host: LOCAL_RANK of the world
  int local_size() const;  // how many these are: LOCAL_WORLD_SIZE of the world
  int node() const;        // which host, numbered by its lowest rank; with TUTTI_TRANSPORT=tcp each rank is a host
  int nodes() const;
  // How long a call of this group may wait for the peers, unless its Request has a limit.
  Duration timeout() const;
  // Where this rank computes: "cpu", or "cuda:N" if GPUs are visible, with the number of the rank on its machine.
  // TUTTI_DEVICE overrides it. For torch::Device(world.device()).
  std::string device() const;

  // This rank begins a training step. `tutti status`, `tutti top` and reports show the number, and the agent learns how
  // long a step takes, so that it can detect a hang. The number belongs to the rank, whatever the group. Any number, in
  // any order; costs less than 0.1 us.
  void step(std::int64_t number) const;
  // Whether the job was asked to stop, by SIGTERM or SIGUSR1 to any rank or by tutti run. The same call returns the
  // same answer on every rank. Then save, and exit with code 75 ("saved, start it again later"). This is a collective:
  // every rank of this group calls it once per step. It costs a small all_reduce, 0.2 us on one host. After the first
  // call such a signal no longer ends the process, but a second one more than a second later does. If the program has a
  // handler for a signal, that handler stays in place (comm/stop_request.h).
  bool should_stop(CallSite at = CallSite::here()) const;

  // `at` is the call site for the flight recorder. Starts an operation. The Work also reports errors of the call
  // itself.
  Work submit(const Request& request, CallSite at = CallSite::here()) const;
  // Starts several operations together, in order. If one of them is invalid, none starts, and every Work has the error.
  Works submit(std::span<const Request> requests, CallSite at = CallSite::here()) const;
  // Runs an operation on the calling thread.
  Status run(const Request& request, CallSite at = CallSite::here()) const;
  // A barrier that names late ranks. After `limit` (0: the group's deadline; the shortest limit of all ranks counts),
  // every rank that arrived gets a kTimeout that lists the ranks that did not. It does not end the group: the late
  // ranks get an error when they arrive, and later calls work. It does not wait for operations under way. It uses the
  // store and takes some round trips: use it at the start of a job or phase, or to find a hang.
  Status monitored_barrier(Duration limit = {}) const;
  // Poisons the group on every rank: pending and later operations end with this error.
  void abort(Error error) const;
  // The error that poisoned the group, or ok.
  Status status() const;

  // Sub-groups. Every rank of this group must make these calls, in the same order. A rank with `color` < 0 takes no
  // part and gets an empty Group. The ranks of the new group are ordered by key, then by rank in this group. `timeout`
  // is the deadline of the new group's calls and must be the same on all its ranks; 0: that of this group. Creating a
  // group has the deadline of this group.
  Result<Group> split(int color, int key, const std::string& name = {}, Duration timeout = {}) const;
  // The listed ranks, in that order. Other ranks get an empty Group. All ranks pass the same list.
  Result<Group> new_group(std::span<const int> ranks, const std::string& name = {}, Duration timeout = {}) const;
  // The listed ranks of the world, in that order; no other rank calls. All give the same list, timeout and name, and no
  // two such groups of one rank that exist at a time have one name. For libraries whose own rules of making groups
  // hold, such as torch.distributed. It uses the store and takes some round trips; the deadline is that of this group.
  Result<Group> group_of_members(std::span<const int> global_ranks, const std::string& name,
                                 Duration timeout = {}) const;
  // Consecutive ranks in groups of `group_size`, which must divide size(). Returns the group of this rank.
  Result<Group> new_subgroups(int group_size, const std::string& name = {}, Duration timeout = {}) const;
  // Several groups at once, each a list of ranks in order. Returns the group that contains this rank, or an empty
  // Group. A rank may be in only one list. All ranks pass the same lists.
  Result<Group> new_subgroups(std::span<const std::vector<int>> lists, const std::string& name = {},
                              Duration timeout = {}) const;
  // (Along the axes of a mesh: comm/mesh_groups.h.)

  // One rank runs `prepare` (a download, a cache) while the other ranks wait: rank 0 of the group, or the lowest rank
  // of each host. Returns whether this rank ran it. An exception in `prepare` is thrown on all ranks. The limit is the
  // group's deadline for collectives.
  enum class Scope { kGroup, kHost };
  bool first(const std::function<void()>& prepare, Scope scope = Scope::kGroup) const;
  // Every rank runs `act`, one after another in rank order. An exception on one rank ends the sequence and is thrown on
  // all.
  void in_order(const std::function<void()>& act) const;

  // Memory that the peers on this host can read: collectives on it copy nothing. 64-byte aligned, prefaulted, not
  // zeroed. It is ordinary memory if no peer shares this host. Freed with the last copy of the pointer.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) const;
  template <class T>
  std::shared_ptr<T[]> allocate_array(std::size_t count) const {
    TUTTI_REQUIRE(count <= (std::size_t(1) << 47) / sizeof(T), "cannot allocate ", count, " elements");
    auto memory = allocate(count * sizeof(T)).or_throw();
    return std::shared_ptr<T[]>(memory, reinterpret_cast<T*>(memory.get()));
  }
  // The path of a call: "alone" (size 1), "direct" (shared memory), "link" (send, recv), the name of the backend if it
  // is not tutti, otherwise the algorithm of its plan: "ring", "recursive_doubling", ...
  std::string plan_name(const Request& request) const;

  comm::GroupState& state() const;  // for the library; throws if this is no group

 private:
  struct Choice;
  Result<Group> split(const Choice& mine, const std::string& name) const;
  Result<Group> divide(const char* verb, std::span<const std::vector<int>> lists, const std::string& name,
                       bool numbered, Duration timeout) const;

  std::shared_ptr<comm::GroupState> state_;
};

}  // namespace tutti
