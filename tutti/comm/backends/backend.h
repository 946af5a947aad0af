#pragma once
// A Backend is a library that transfers the bytes of a group in place of tutti: MPI, Gloo or NCCL. Users choose it by
// name for each kind of device: TUTTI_ENGINE=gloo, or "cpu:mpi,cuda:nccl".
//
// The adapter of a backend is a shared object (libtutti_gloo.so) that is opened on demand, so no program links
// libraries that it does not use. With every backend the group itself provides what users rely on: numbering, checking
// of arguments, the queue, deadlines, root causes. An adapter only starts an operation and reports when it has ended.
//
// Adapters do not link tutti. They include its headers, and BackendServices gives them the functions that they need.
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

namespace tutti::comm {

struct BackendServices {
  // into[i] = into[i] op other[i]
  void (*reduce_pair)(DType dtype, ReduceOp op, void* into, const void* other, std::size_t count);
  Result<void*> (*find_cuda_library)(const cuda::LibraryQuery& query);
};

// A group that opens a backend. Everything borrowed here lives as long as the Backend.
struct BackendSetup {
  std::string group;  // its name, for errors
  std::string key;    // prefix, unique to the group, for all keys that the adapter writes to the store
  int rank = 0, size = 1;
  Store* store = nullptr;        // of the job
  std::string address;           // under which the other ranks reach this rank: "10.0.0.7"
  Duration limit{};              // of a collective, unless its Request sets another
  Deadline deadline;             // for opening
  std::function<void()> notify;  // signals that an operation may have moved; call from any thread
  BackendServices services;
  // For GPU backends:
  int device = kHost;                          // this rank's device; it is current in every call of the adapter
  const cuda::Runtime* cuda = nullptr;         // null otherwise
  std::function<bool()> is_anybody_lost = {};  // whether a member was lost since; ends a wait before its deadline
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Starts an operation, whose step() must not block. Called by the driver of the group, one call at a time, in the
  // same order on every rank (for sends and receives: on the two ranks involved).
  //
  // The requests are already checked and simpler than those of users. Reductions are of f32, f64 and integers, never
  // avg or premul_sum. `in` and `out` are equal or do not overlap, except in gathers (in is the rank's own part of out)
  // and scatters (the other way round).
  //
  // If an operation is destroyed before its end, its buffers must no longer be in use when the destructor returns. An
  // adapter that cannot guarantee this explains why in its header comment. A GPU backend gets the requests that it
  // carries() as the user made them, f16 and averages included. It enqueues them on the request's stream, which is the
  // same for all its calls.
  virtual Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t sequence) = 0;
  // Only for GPU backends. Requests that a backend does not carry go through the CPU. All ranks of a call must get the
  // same answer.
  virtual bool carries(const Request&) const { return true; }
  // Called from any thread when the group has failed. Operations in flight must end soon, with any error.
  virtual void abort() = 0;
};

// The exports of an adapter's shared object: kBackendAbi, which must match, and the functions below.
inline constexpr int kBackendAbi = 5;
extern "C" {
using OpenBackend = Backend* (*)(const BackendSetup* setup, Error* error);  // null: see error
// Optional. Whether this rank could open the backend, without contacting other ranks; and the version of its library.
using ProbeBackend = bool (*)(const BackendSetup* setup, std::string* version, Error* error);
}
inline constexpr const char* kBackendAbiSymbol = "tutti_backend_abi";      // int
inline constexpr const char* kOpenBackendSymbol = "tutti_open_backend";    // OpenBackend
inline constexpr const char* kProbeBackendSymbol = "tutti_probe_backend";  // ProbeBackend

}  // namespace tutti::comm
