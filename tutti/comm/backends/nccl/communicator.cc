// NCCL without blocking. A call that returns ncclInProgress continues in a thread of NCCL, and ncclCommGetAsyncError
// reports when it has ended. There is nothing to sleep on, so waiting means polling.
//
// ncclCommAbort may be called while another thread is inside a call of NCCL; that is its purpose. It may also take
// long, or hang with the GPU driver. So it runs in a detached thread. The mutex prevents it from freeing memory that a
// call about to return still uses. A call that does not return within two seconds is aborted regardless.
#include "tutti/comm/backends/nccl/communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "tutti/base/deadline.h"
#include "tutti/base/thread.h"

namespace tutti::comm::nccl_engine {
namespace {

constexpr Duration kNap = std::chrono::milliseconds(1);
constexpr Duration kFarewell = std::chrono::seconds(1);
constexpr Duration kCallReturns = std::chrono::seconds(2);

// Encodes NCCL's random bytes as letters, because the file of a store may be line-based.
std::string in_letters(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) {
    text += char('a' + (std::uint8_t(c) >> 4));
    text += char('a' + (std::uint8_t(c) & 15));
  }
  return text;
}

Result<ncclUniqueId> from_letters(const std::string& text) {
  ncclUniqueId id;
  if (text.size() != 2 * sizeof id.internal)
    return Error{.code = Code::kCorrupt,
                 .detail = "rank 0 sent an NCCL id of a different length: does it run a different version of NCCL?"};
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = char((text[2 * i] - 'a') << 4 | (text[2 * i + 1] - 'a'));
  return id;
}

}  // namespace

Error Communicator::given_up() {
  return Error{.code = Code::kAborted, .detail = "the NCCL communicator was aborted after an error"};
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Api& api, const BackendSetup& setup) {
  const std::string key = setup.key + "id";
  ncclUniqueId id;
  if (setup.rank == 0) {
    if (const ncclResult_t result = api.ncclGetUniqueId(&id); result != ncclSuccess)
      return api.failure(result, "make an id for the group", nullptr);
    TUTTI_TRY(setup.store->set(key, in_letters(id)));
  } else {
    id = TUTTI_TRY(from_letters(TUTTI_TRY(setup.store->get(key, setup.deadline))));
  }
  std::unique_ptr<Communicator> made(new Communicator(api));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  {
    State& state = *made->state_;
    const TimedMutexLock lock(state.mutex);
    const ncclResult_t result = api.ncclCommInitRankConfig(&state.comm, setup.size, id, setup.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) return api.failure(result, "connect the ranks", state.comm);
  }
  if (Status status = made->settle(setup); !status.ok()) {
    made->abort();
    return status;
  }
  return made;
}

Status Communicator::settle(const BackendSetup& setup) {
  for (;;) {
    auto settled = is_settled();
    if (!settled.ok()) return settled.status();
    if (*settled) return {};
    if (setup.deadline.expired()) {
      Error error = setup.deadline.error("NCCL did not connect the ranks");
      error.hint = "NCCL_DEBUG=INFO shows how far it got; NCCL_SOCKET_IFNAME chooses the network";
      return error;
    }
    if (setup.is_anybody_lost && setup.is_anybody_lost())
      return Error{.code = Code::kPeerLost, .detail = "was lost while NCCL connected the ranks"};
    std::this_thread::sleep_for(kNap);
  }
}

Result<bool> Communicator::is_settled() {
  ncclResult_t state = ncclSuccess;
  TUTTI_TRY(call("report its state", [&](ncclComm_t comm) { return api_.ncclCommGetAsyncError(comm, &state); }));
  if (state == ncclInProgress) return false;
  if (state == ncclSuccess) return true;
  const TimedMutexLock lock(state_->mutex);
  if (state_->aborted) return given_up();
  return api_.failure(state, "continue", state_->comm);
}

void Communicator::abort() {
  if (state_->aborted.exchange(true)) return;
  auto thread = start_thread([state = state_] { abort_now(*state); });
  if (thread.ok())
    thread->detach();
  else
    abort_now(*state_);
}

// Not analysed: where a call is stuck, the mutex stays with it, and NCCL allows an abort beside the call. `comm` is set
// by open() alone, before anything can be aborted.
void Communicator::abort_now(State& state) TUTTI_NO_THREAD_SAFETY_ANALYSIS {
  const bool locked = state.mutex.try_lock_for(kCallReturns);
  if (state.comm) state.api->ncclCommAbort(state.comm);
  if (locked) state.mutex.unlock();
}

Communicator::~Communicator() {
  if (state_->aborted) return;
  const auto patience = Deadline::after(kFarewell);
  Status status = call("finalize", [&](ncclComm_t comm) { return api_.ncclCommFinalize(comm); });
  while (status.ok() && !patience.expired()) {
    const auto settled = is_settled();
    if (!settled.ok()) break;
    if (*settled) {
      (void)call("end", [&](ncclComm_t comm) { return api_.ncclCommDestroy(comm); });
      return;
    }
    std::this_thread::sleep_for(kNap);
  }
  abort();  // the other members have not finalized in time
}

}  // namespace tutti::comm::nccl_engine
