// A double of NCCL on the double of CUDA: the ranks are processes, a call runs on its stream, and a communicator that
// was opened with blocking = 0 behaves as the documentation says, at its strictest. A call returns ncclInProgress;
// before ncclCommGetAsyncError has said ncclSuccess (at the third look) no other call is allowed, and nothing is on the
// stream. Sends and receives of one group of calls proceed at once. A peer that never comes, or dies, is waited for
// until ncclCommAbort.
//
// FAKE_NCCL makes one rank behave badly, "WHAT:RANK" or "WHAT:RANK:CALL" with the calls of the communicator counted
// from 1: never_init, fail_init; hang, fail (its part of that call hangs, or the communicator fails).
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/cudart.h"
#include "tests/fakes/cuda/nccl_math.h"
#include "tests/fakes/cuda/nccl_wire.h"

using fake_nccl::Transfer;
using fake_nccl::Wire;

namespace {

constexpr int kLooks = 3;       // until a call has been taken over
constexpr int kFirstOwnOp = 5;  // premultiplied sums are numbered from here

// One call to NCCL, or one of several in a group.
struct Call {
  enum class Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv } kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // or the root
  void* stream;
};

struct Misbehaviour {
  std::string what;
  int call = 0;
};

Misbehaviour misbehaviour_of(int rank) {
  const char* const text = std::getenv("FAKE_NCCL");
  char what[32] = "";
  int who = -1, call = 0;
  if (!text || std::sscanf(text, "%31[^:]:%d:%d", what, &who, &call) < 2 || who != rank) return {};
  return {what, call};
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Call>> grouped;

}  // namespace

struct ncclComm {
  int rank, size, device;
  bool blocking;
  Misbehaviour bad;
  std::unique_ptr<Wire> wire;
  std::atomic<bool> stop{false};
  std::atomic<int> state{ncclSuccess};  // of the initialisation, and of what went wrong since
  std::atomic<int> running{0};          // on streams
  std::atomic<bool> joining{false};
  int calls = 0, looks = 0;       // looks: that are still needed
  std::function<void()> pending;  // put on the stream at the last of them
  std::vector<std::vector<unsigned char>> factors;

  bool reduce_like(const Call& c, std::byte* in, std::byte* out) {
    const std::size_t bytes = c.count * fake_nccl::size_of(c.type);
    const bool scatters = c.kind == Call::Kind::kReduceScatter, to_all = c.kind == Call::Kind::kAllReduce || scatters;
    std::vector<std::byte> given(in, in + bytes * std::size_t(scatters ? size : 1));
    if (int(c.op) >= kFirstOwnOp)
      fake_nccl::multiply(c.type, factors[std::size_t(c.op) - kFirstOwnOp].data(), given.data(),
                          c.count * std::size_t(scatters ? size : 1));
    const auto part = [&](int r) { return given.data() + (scatters ? std::size_t(r) * bytes : 0); };
    const bool gets = to_all || rank == c.peer;
    std::vector<std::vector<std::byte>> came(std::size_t(size), std::vector<std::byte>(gets ? bytes : 0));
    std::vector<Transfer> sends, recvs;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      if (to_all || r == c.peer) sends.push_back({r, part(r), bytes});
      if (gets) recvs.push_back({r, came[std::size_t(r)].data(), bytes});
    }
    if (!wire->exchange(sends, recvs, stop)) return false;
    if (!gets) return true;
    std::vector<const void*> from;
    for (int r = 0; r < size; ++r) from.push_back(r == rank ? part(rank) : came[std::size_t(r)].data());
    fake_nccl::reduce(c.type, c.op, from, out, c.count);
    return true;
  }

  // Those between two ranks are gathered in `sends` and `recvs`; the others are done.
  bool run(const Call& c, std::vector<Transfer>& sends, std::vector<Transfer>& recvs) {
    auto* const in = static_cast<std::byte*>(fake_cuda_bytes(c.in));
    auto* const out = static_cast<std::byte*>(fake_cuda_bytes(c.out));
    const std::size_t bytes = c.count * fake_nccl::size_of(c.type);
    switch (c.kind) {
      case Call::Kind::kAllReduce:
      case Call::Kind::kReduce:
      case Call::Kind::kReduceScatter:
        return reduce_like(c, in, out);
      case Call::Kind::kSend:
        sends.push_back({c.peer, in, bytes});
        return true;
      case Call::Kind::kRecv:
        recvs.push_back({c.peer, out, bytes});
        return true;
      case Call::Kind::kBroadcast: {
        if (rank != c.peer) return wire->exchange({}, {{c.peer, out, bytes}}, stop);
        if (in != out && bytes > 0) std::memmove(out, in, bytes);
        std::vector<Transfer> to_all;
        for (int r = 0; r < size; ++r)
          if (r != rank) to_all.push_back({r, in, bytes});
        return wire->exchange(to_all, {}, stop);
      }
      case Call::Kind::kAllGather: {
        std::vector<std::byte> mine(in, in + bytes);
        std::vector<Transfer> to_all, from_all;
        for (int r = 0; r < size; ++r) {
          if (r == rank) continue;
          to_all.push_back({r, mine.data(), bytes});
          from_all.push_back({r, out + std::size_t(r) * bytes, bytes});
        }
        if (bytes > 0) std::memcpy(out + std::size_t(rank) * bytes, mine.data(), bytes);
        return wire->exchange(to_all, from_all, stop);
      }
    }
    return false;
  }

  void run_on_stream(const std::vector<Call>& group, int number) {
    if (bad.what == "hang" && bad.call == number)
      while (!stop.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (bad.what == "fail" && bad.call == number) {
      state = ncclSystemError;
      return;
    }
    std::vector<Transfer> sends, recvs;
    for (const Call& c : group)
      if (stop.load() || !run(c, sends, recvs)) return;
    wire->exchange(sends, recvs, stop);
  }

  ncclResult_t take(std::vector<Call> group) {
    if (state != ncclSuccess) return ncclResult_t(state.load());
    if (looks > 0) return ncclInvalidUsage;  // the call before it has not been taken over
    const int number = ++calls;
    pending = [this, group, number] {
      struct Job {
        ncclComm* comm;
        std::vector<Call> group;
        int number;
      };
      running.fetch_add(1);
      fake_cuda_enqueue(
          group[0].stream,
          [](void* data) {
            std::unique_ptr<Job> job(static_cast<Job*>(data));
            job->comm->run_on_stream(job->group, job->number);
            job->comm->running.fetch_sub(1);
          },
          new Job{this, group, number});
    };
    if (blocking) {
      pending();
      pending = nullptr;
      return ncclSuccess;
    }
    looks = kLooks;
    return ncclInProgress;
  }
};

namespace {

ncclResult_t submit(ncclComm_t comm, Call call) {
  if (group_depth > 0) {
    grouped.emplace_back(comm, call);
    return ncclSuccess;
  }
  if (call.count == 0) return ncclSuccess;
  return comm->take({call});
}

void connect(ncclComm* comm) {
  if (comm->bad.what == "never_init") return;
  if (comm->bad.what == "fail_init") {
    while (!comm->stop.load() && !comm->wire->is_open_everywhere())
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    comm->state = ncclSystemError;
    return;
  }
  comm->wire->join(comm->device);
  while (!comm->stop.load() && !comm->wire->is_complete()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (comm->stop.load()) return;
  comm->wire->unlink();
  comm->state = comm->wire->shares_a_gpu() ? ncclInvalidUsage : ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const said = std::getenv("FAKE_NCCL_VERSION");
  *version = said ? std::atoi(said) : NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = Wire::make_id();
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  auto* const comm = new ncclComm;
  comm->rank = rank, comm->size = size;
  comm->blocking = !config || config->blocking != 0;
  comm->bad = misbehaviour_of(rank);
  comm->device = fake_cuda_current_device();
  comm->wire = std::make_unique<Wire>(id, rank, size);
  comm->state = ncclInProgress;
  *made = comm;
  if (comm->blocking) {
    connect(comm);
    return ncclResult_t(comm->state.load());
  }
  comm->joining = true;
  std::thread([comm] {
    connect(comm);
    comm->joining = false;
  }).detach();
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclResult_t(comm->state.load());
  if (*state != ncclSuccess || comm->looks == 0) return ncclSuccess;
  if (--comm->looks == 0) {
    if (comm->pending) comm->pending();
    comm->pending = nullptr;
  }
  *state = comm->looks == 0 ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->looks > 0) return ncclInvalidUsage;
  comm->looks = kLooks;
  return ncclInProgress;
}
static ncclResult_t end(ncclComm_t comm) {
  comm->stop = true;
  while (comm->running.load() > 0 || comm->joining.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  comm->wire->unlink();
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return comm->looks > 0 ? ncclInvalidUsage : end(comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm); }

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "an error of the double";
  }
}
const char* ncclGetLastError(ncclComm_t) { return "told by the double"; }

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm) {
  if (comm->looks > 0) return ncclInvalidUsage;
  const auto* const bytes = static_cast<unsigned char*>(scalar);
  comm->factors.emplace_back(bytes, bytes + fake_nccl::size_of(type));
  *op = ncclRedOp_t(kFirstOwnOp + int(comm->factors.size()) - 1);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t comm) {
  return comm->looks > 0 ? ncclInvalidUsage : ncclSuccess;  // what was enqueued goes on with it
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {Call::Kind::kAllReduce, in, out, count, type, op, -1, stream});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {Call::Kind::kReduce, in, out, count, type, op, root, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, {Call::Kind::kBroadcast, in, out, count, type, ncclSum, root, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, {Call::Kind::kAllGather, in, out, count, type, ncclSum, -1, stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {Call::Kind::kReduceScatter, in, out, count, type, op, -1, stream});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, {Call::Kind::kSend, in, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {Call::Kind::kRecv, nullptr, out, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || grouped.empty()) return ncclSuccess;
  ncclComm_t const comm = grouped[0].first;
  std::vector<Call> calls;
  for (const auto& [of, call] : grouped)
    if (call.count > 0) calls.push_back(call);
  grouped.clear();
  return calls.empty() ? ncclSuccess : comm->take(calls);
}
}
