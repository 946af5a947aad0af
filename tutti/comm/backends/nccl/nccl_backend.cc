// The backend nccl. A call is enqueued on the group's NCCL stream, behind the work that the caller had on its own
// stream. It has ended when an event behind it has passed. Threads of NCCL do the enqueuing, so nothing here blocks.
// Once it is done, the next call of the group is enqueued while this one still runs, so the GPU never waits for the
// host.
//
// Operations that NCCL does not have are composed of others, in one group of calls that NCCL runs at once. Gathers,
// scatters and exchanges use sends and receives. The _v forms of all_gather and reduce_scatter use one broadcast or
// reduce per rank. This backend does not carry operations that NCCL cannot do at all, so they go through the CPU
// (tutti/comm/cuda): scans, bit operations, averages of integers, and sends and receives of users. (NCCL has neither
// tags nor a receive from any source, and blocks a stream until the peer arrives.)
//
// An operation that is destroyed before its end waits until the GPU no longer uses the buffers. After an abort this
// takes milliseconds. After five seconds, in all, operations of a group stop waiting, and a GPU that hangs may still
// write to their buffers.
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/comm/backends/backend.h"
#include "tutti/comm/backends/nccl/communicator.h"
#include "tutti/comm/backends/nccl/types.h"
#include "tutti/comm/layout.h"

namespace tutti::comm::nccl_engine {
namespace {

constexpr Duration kLookAgain = std::chrono::microseconds(50);
constexpr Duration kLetGo = std::chrono::seconds(5);

// Device memory that consecutive calls on one stream share.
class Scratch {
 public:
  explicit Scratch(const cuda::Runtime& runtime) : runtime_(runtime) {}
  ~Scratch() {
    for (void* block : blocks_) runtime_.cudaFree(block);
  }
  // Smaller blocks are kept, because freeing them would wait for the calls that use them.
  Result<std::byte*> take(std::size_t bytes) {
    if (bytes > size_) {
      void* block = nullptr;
      bytes = std::max(bytes, 2 * size_);
      TUTTI_TRY(runtime_.check(runtime_.cudaMalloc(&block, bytes), "allocate the buffer of an in-place exchange"));
      blocks_.push_back(block);
      size_ = bytes;
    }
    return static_cast<std::byte*>(blocks_.back());
  }

 private:
  const cuda::Runtime& runtime_;
  std::vector<void*> blocks_;  // the last one is the largest
  std::size_t size_ = 0;
};

class NcclOperation;

// The state that the operations of a group share.
struct Shared {
  const Api& api;
  const cuda::Runtime& cuda;
  Communicator& communicator;
  Scratch& scratch;
  std::deque<const NcclOperation*>& on_stream;  // those that are on the stream, in its order
  std::optional<Deadline>& patience;            // of all operations that are destroyed before their end
  int device, rank, size;
};

class NcclOperation final : public Operation {
 public:
  NcclOperation(const Shared& shared, const Request& request)
      : s_(shared),
        api_(shared.api),
        request_(request),
        stream_(static_cast<cudaStream_t>(request.stream)),
        elements_(elements_of(request.dtype)),
        element_(size_of(request.dtype)) {}

  ~NcclOperation() override {
    const cuda::OnDevice current(s_.cuda, s_.device);
    if (begun_ && !done_) {
      if (!s_.patience) s_.patience = Deadline::after(kLetGo);
      while (s_.cuda.cudaStreamQuery(stream_) == cuda::kNotReady && !s_.patience->expired()) std::this_thread::yield();
    }
    s_.cuda.cudaGetLastError();
    if (!done_) std::erase(s_.on_stream, this);
  }

  Status begin() {
    ended_ = TUTTI_TRY(cuda::Event::make(s_.cuda));
    if (is_reduction(request_.kind)) TUTTI_TRY(make_op());
    TUTTI_TRY(enqueue());
    begun_ = true;
    return {};
  }

  Result<Progress> step() override {
    const cuda::OnDevice current(s_.cuda, s_.device);
    if (!enqueued_) {
      if (!TUTTI_TRY(s_.communicator.is_settled())) return Progress::kBlocked;
      if (own_op_)
        TUTTI_TRY(call("destroy the reduction with a factor",
                       [&](ncclComm_t comm) { return api_.ncclRedOpDestroy(op_, comm); }));
      TUTTI_TRY(ended_.record(stream_));
      enqueued_ = true;
      s_.on_stream.push_back(this);
      return Progress::kMoved;
    }
    if (s_.on_stream.front() != this) return Progress::kBlocked;
    const bool passed = TUTTI_TRY(ended_.has_passed());
    TUTTI_TRY(s_.communicator.is_settled());  // reports a failed call, past which a stream continues
    done_ = passed;
    if (passed) s_.on_stream.pop_front();
    return passed ? Progress::kDone : Progress::kBlocked;
  }

  bool lets_next_start() const override { return enqueued_; }

  Hold hold(void* stream) const override {
    if (!enqueued_) return Hold::kNotYet;
    const cuda::OnDevice current(s_.cuda, s_.device);
    const int code = s_.cuda.cudaStreamWaitEvent(stream, ended_.get(), 0);
    return s_.cuda.check(code, "order two streams").ok() ? Hold::kHeld : Hold::kNever;
  }

  void blockers(Blockers& blockers) const override {
    blockers.in_turn = enqueued_ && s_.on_stream.front() != this;
    if (blockers.in_turn) return;
    blockers.carried = true;
    for (int r = 0; r < s_.size; ++r)
      if (r != s_.rank) blockers.ranks.push_back(r);
    blockers.look_again = kLookAgain;
  }

 private:
  template <class Act>
  Status call(const char* doing, const Act& act) {
    return s_.communicator.call(doing, act);
  }

  Status make_op() {
    op_ = op_of(request_.dtype, request_.op);
    if (request_.op != ReduceOp::kPremulSum) return {};
    Scalar scalar = scalar_of(request_.dtype, request_.factor);
    TUTTI_TRY(call("create a reduction with a factor", [&](ncclComm_t comm) {
      return api_.ncclRedOpCreatePreMulSum(&op_, scalar.bytes, elements_.type, ncclScalarHostImmediate, comm);
    }));
    own_op_ = true;
    return {};
  }

  const std::byte* in(std::size_t element = 0) const {
    return static_cast<const std::byte*>(request_.in) + element * element_;
  }
  std::byte* out(std::size_t element = 0) const { return static_cast<std::byte*>(request_.out) + element * element_; }
  std::size_t units(std::size_t count) const { return count * elements_.each; }

  Status enqueue() {
    const Request& r = request_;
    const std::size_t count = units(r.count);
    const ncclDataType_t type = elements_.type;
    if (count == 0 && r.in_splits.empty() && r.out_splits.empty() && r.kind != Kind::kBarrier && !is_uneven(r.kind))
      return {};
    switch (r.kind) {
      case Kind::kBarrier: {
        std::byte* const word = TUTTI_TRY(s_.scratch.take(sizeof(std::int32_t)));
        return call("meet", [&](ncclComm_t comm) {
          return api_.ncclAllReduce(word, word, 1, ncclInt32, ncclMax, comm, stream_);
        });
      }
      case Kind::kBroadcast:
        return call("broadcast", [&](ncclComm_t comm) {
          return api_.ncclBroadcast(out(), out(), count, type, r.root, comm, stream_);
        });
      case Kind::kReduce:
        return call("reduce", [&](ncclComm_t comm) {
          return api_.ncclReduce(r.in, r.out, count, type, op_, r.root, comm, stream_);
        });
      case Kind::kAllReduce:
        return call("reduce",
                    [&](ncclComm_t comm) { return api_.ncclAllReduce(r.in, r.out, count, type, op_, comm, stream_); });
      case Kind::kAllGather:
        return call("gather",
                    [&](ncclComm_t comm) { return api_.ncclAllGather(r.in, r.out, count, type, comm, stream_); });
      case Kind::kReduceScatter:
        return call("reduce", [&](ncclComm_t comm) {
          return api_.ncclReduceScatter(r.in, r.out, count, type, op_, comm, stream_);
        });
      case Kind::kAllGatherV:
        return for_each_part(r.out_splits, [&](int root, std::size_t begin, std::size_t n, ncclComm_t comm) {
          return api_.ncclBroadcast(root == s_.rank ? r.in : out(begin), out(begin), units(n), type, root, comm,
                                    stream_);
        });
      case Kind::kReduceScatterV:
        return for_each_part(r.in_splits, [&](int root, std::size_t begin, std::size_t n, ncclComm_t comm) {
          return api_.ncclReduce(in(begin), r.out, units(n), type, op_, root, comm, stream_);
        });
      case Kind::kGather:
      case Kind::kScatter:
      case Kind::kAllToAll:
      case Kind::kGatherV:
      case Kind::kScatterV:
        return exchange();
      case Kind::kScan:
      case Kind::kExscan:
      case Kind::kSend:
      case Kind::kRecv:
        break;
    }
    return Error{.code = Code::kInternal, .detail = "NCCL does not support this call"};
  }

  // One group of NCCL calls: act(rank, first element, elements, comm) for every non-empty part.
  template <class Act>
  Status for_each_part(std::span<const std::size_t> splits, const Act& act) {
    return call("run the parts of a call", [&](ncclComm_t comm) {
      ncclResult_t result = api_.ncclGroupStart();
      std::size_t begin = 0;
      for (int r = 0; r < s_.size && fine(result); ++r) {
        const std::size_t n = splits[std::size_t(r)];
        if (n > 0) result = act(r, begin, n, comm);
        begin += n;
      }
      const ncclResult_t end = api_.ncclGroupEnd();
      return fine(result) ? end : result;
    });
  }
  static bool fine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

  // What is transferred between two ranks, of which this rank is one.
  Stretch stretch(int from, int to) const {
    return gives(request_, from) && gets(request_, to) ? stretch_of(request_, s_.rank, from, to) : Stretch{};
  }

  Status exchange() {
    std::vector<Stretch> to, from;
    for (int r = 0; r < s_.size; ++r) {
      to.push_back(stretch(s_.rank, r));
      from.push_back(stretch(r, s_.rank));
    }
    const std::byte* source = in();
    if (request_.kind == Kind::kAllToAll && request_.in == request_.out) {
      const std::size_t bytes = (to.back().in_begin + to.back().count) * element_;
      std::byte* const copy = TUTTI_TRY(s_.scratch.take(bytes));
      TUTTI_TRY(copy_on_device(copy, source, bytes));
      source = copy;
    }
    const Stretch& own = to[std::size_t(s_.rank)];
    if (own.count > 0)
      TUTTI_TRY(copy_on_device(out(own.out_begin), source + own.in_begin * element_, own.count * element_));
    bool any = false;
    for (int r = 0; r < s_.size; ++r) any |= r != s_.rank && to[std::size_t(r)].count + from[std::size_t(r)].count > 0;
    if (!any) return {};
    return call("exchange parts", [&](ncclComm_t comm) {
      ncclResult_t result = api_.ncclGroupStart();
      for (int r = 0; r < s_.size && fine(result); ++r) {
        const Stretch &give = to[std::size_t(r)], &get = from[std::size_t(r)];
        if (r == s_.rank) continue;
        if (give.count > 0)
          result =
              api_.ncclSend(source + give.in_begin * element_, units(give.count), elements_.type, r, comm, stream_);
        if (fine(result) && get.count > 0)
          result = api_.ncclRecv(out(get.out_begin), units(get.count), elements_.type, r, comm, stream_);
      }
      const ncclResult_t end = api_.ncclGroupEnd();
      return fine(result) ? end : result;
    });
  }

  Status copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (to == from || bytes == 0) return {};
    return s_.cuda.check(s_.cuda.cudaMemcpyAsync(to, from, bytes, cuda::kAnyDirection, request_.stream),
                         "copy on the GPU");
  }

  const Shared& s_;
  const Api& api_;
  const Request request_;
  const cudaStream_t stream_;
  const Elements elements_;
  const std::size_t element_;
  ncclRedOp_t op_ = ncclSum;
  bool own_op_ = false, begun_ = false, enqueued_ = false, done_ = false;
  cuda::Event ended_;
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(const BackendSetup& setup, const Api& api, std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)),
        scratch_(*setup.cuda),
        shared_{api,       *setup.cuda,  *communicator_, scratch_,  on_stream_,
                patience_, setup.device, setup.rank,     setup.size} {}

  Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t) override {
    const cuda::OnDevice current(shared_.cuda, shared_.device);
    auto operation = std::make_unique<NcclOperation>(shared_, request);
    TUTTI_TRY(operation->begin());
    return std::unique_ptr<Operation>(std::move(operation));
  }
  bool carries(const Request& request) const override {
    if (is_point_to_point(request.kind) || is_scan(request.kind)) return false;
    return !is_reduction(request.kind) || has_reduction(request.dtype, request.op);
  }
  void abort() override { communicator_->abort(); }

 private:
  const std::unique_ptr<Communicator> communicator_;
  Scratch scratch_;
  std::deque<const NcclOperation*> on_stream_;
  std::optional<Deadline> patience_;
  const Shared shared_;
};

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const int tutti_backend_abi = kBackendAbi;

[[gnu::visibility("default")]] bool tutti_probe_backend(const BackendSetup* setup, std::string* version, Error* error) {
  const auto found = api(setup->services);
  if (!found.ok()) *error = found.error();
  if (found.ok()) *version = (*found)->version();
  return found.ok();
}

[[gnu::visibility("default")]] Backend* tutti_open_backend(const BackendSetup* setup, Error* error) {
  const auto open = [&]() -> Result<Backend*> {
    const Api* const found = TUTTI_TRY(api(setup->services));
    return new NcclBackend(*setup, *found, TUTTI_TRY(Communicator::open(*found, *setup)));
  };
  const Result<Backend*> opened = open();
  if (opened.ok()) return *opened;
  *error = opened.error();
  return nullptr;
}
}

}  // namespace tutti::comm::nccl_engine
