#pragma once
// What carries the bytes of a group where tutti does not do it itself: MPI, Gloo, NCCL. Users choose it by name, as the
// *engine* of a kind of device: TUTTI_ENGINE=gloo, or "cpu:mpi,cuda:nccl".
//
// An adapter is a shared object of its own (libtutti_gloo.so), which is opened when it is asked for: no program links
// what it does not use. The group keeps what users rely on whatever the engine: numbering, checking of arguments, the
// queue, deadlines, root causes. An adapter only starts an operation and says when it has ended.
//
// Adapters link nothing of tutti; they include headers, and what they need of its code comes in BackendServices.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/cuda/library.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"
#include "tutti/store/store.h"

namespace tutti {

struct BackendServices {
  // into[i] = into[i] op other[i]
  void (*reduce_pair)(DType dtype, ReduceOp op, void* into, const void* other, std::size_t count);
  Result<void*> (*find_cuda_library)(const cuda::LibraryQuery& query);
};

// A group that wants to be carried. What it borrows lives as long as the Backend.
struct BackendSetup {
  std::string group;  // its name, for errors
  std::string key;    // for whatever the adapter puts into the store: starts every key; the group's own
  int rank = 0, size = 1;
  Store* store = nullptr;        // of the job
  std::string address;           // under which the other ranks reach this one: "10.0.0.7"
  Duration limit{};              // of a collective, unless its Request says another
  Deadline deadline;             // for opening
  std::function<void()> notify;  // any thread: an operation may have moved
  BackendServices services;
  // Of an engine for GPUs:
  int device = kHost;                          // where this rank computes, and is when the adapter is called
  const cuda::Runtime* cuda = nullptr;         // null otherwise
  std::function<bool()> is_anybody_lost = {};  // a member, since: nobody need wait for the whole deadline
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Starts an operation; its step() must not block. The driver of the group calls, one call at a time, in the same
  // order on every rank (sends and receives: on the two that they join). What arrives here is checked, and simpler than
  // what users say: reductions are of f32, f64 and integers, never avg or premul_sum, and in and out are the same or do
  // not overlap, except for gathers (in is the rank's own part of out) and scatters (the other way round). An operation
  // that is destroyed before its end must have let go of its buffers when the destructor returns, or say in its
  // adapter's essay why it cannot. An engine for GPUs gets what it says that it carries() as the user said it, f16 and
  // averages included, and enqueues it on the request's stream, which is the same for all its calls.
  virtual Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t sequence) = 0;
  // Asked of engines for GPUs; what one does not carry goes through the CPU. The same on all ranks that make this call.
  virtual bool carries(const Request&) const { return true; }
  // The group has failed: what is in flight ends soon, with any error. Any thread.
  virtual void abort() = 0;
};

// What the shared object of an adapter exports: an Abi that must be this one, and how to open.
inline constexpr int kBackendAbi = 4;
extern "C" {
using OpenBackend = Backend* (*)(const BackendSetup* setup, Error* error);  // null: see error
// Optional: whether it could be opened as far as this rank is concerned. Asks nobody.
using ProbeBackend = bool (*)(const BackendSetup* setup, Error* error);
}
inline constexpr const char* kBackendAbiSymbol = "tutti_backend_abi";      // int
inline constexpr const char* kOpenBackendSymbol = "tutti_open_backend";    // OpenBackend
inline constexpr const char* kProbeBackendSymbol = "tutti_probe_backend";  // ProbeBackend

}  // namespace tutti
