// The backend gloo. Gloo's calls block, so collectives run one after another on a thread of the group. Each send or
// receive in flight has a thread that waits for it; they are posted in the order of the calls.
//
// A blocked call of Gloo cannot be interrupted. Closing its connections does not wake it; only its own timeout does. So
// all calls work on copies of the buffers, owned by the flight. If a call is abandoned, the stuck thread keeps the
// copies. This costs one copy in and one out, on a backend that is not chosen for its speed.
//
// Operations that Gloo does not have are composed of others. A reduce_scatter is an all_reduce of which each rank keeps
// its part. An uneven gather or scatter is an all_to_all in which all parts but the root's are empty. Gloo does not
// authenticate peers.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "tutti/comm/backends/backend.h"
#include "tutti/comm/backends/gloo/gloo_store.h"
#include "tutti/comm/backends/gloo/worker.h"
#include "tutti/comm/layout.h"

namespace tutti::comm::gloo_engine {
namespace {

using Context = std::shared_ptr<::gloo::Context>;
using Bytes = std::vector<std::uint8_t>;

constexpr Duration kSlack = std::chrono::seconds(5);  // the group's own limit, with its better message, expires first
constexpr std::size_t kScanBlock = 4 << 20;           // bytes of all ranks

constexpr std::chrono::milliseconds kFarewell{1000};

std::chrono::milliseconds in_milliseconds(Duration limit) {
  return std::chrono::ceil<std::chrono::milliseconds>(limit + kSlack);
}

// Gloo writes to sockets whose peer may be gone without suppressing SIGPIPE.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipes() {
    const timespec at_once{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

// A call on copies of the caller's buffers.
struct Flight {
  Request request;
  int rank, size;
  std::vector<std::size_t> in_splits, out_splits;  // of the request
  Bytes in, out;
  void* result = nullptr;                                    // the caller's buffer for `out`; null: none
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;  // of a send or receive
  int source = -1;                                           // the sender of the received message
  Job job;

  std::size_t element() const { return size_of(request.dtype); }
  std::size_t bytes() const { return request.count * element(); }
};

// Copies the caller's input and allocates the output.
void take_buffers(Flight& f) {
  const Request& r = f.request;
  const bool is_one_buffer = verb(r.kind).in == Verb::Buffer::kNone;
  Extent elements = elements_of(r, f.rank, f.size);
  if (is_one_buffer && gives(r, f.rank)) elements.in = r.count;
  if (r.kind == Kind::kReduce) elements.out = r.count;  // Gloo adds there on every rank
  const auto* const from = static_cast<const std::uint8_t*>(given(r));
  if (elements.in > 0) f.in.assign(from, from + elements.in * f.element());
  f.out.resize(elements.out * f.element());
  const bool writes = gets(r, f.rank) && !(is_one_buffer && gives(r, f.rank));
  f.result = writes && elements.out > 0 ? r.out : nullptr;
}

// Gloo's reductions take only an element size and a function.
template <class Options>
void set_typed(Options& options, Flight& f, std::uint8_t* in, std::uint8_t* out, std::size_t count) {
  switch (f.element()) {
    case 1:
      options.setInput(in, count), options.setOutput(out, count);
      break;
    case 2:
      options.setInput(reinterpret_cast<std::uint16_t*>(in), count);
      options.setOutput(reinterpret_cast<std::uint16_t*>(out), count);
      break;
    case 4:
      options.setInput(reinterpret_cast<std::uint32_t*>(in), count);
      options.setOutput(reinterpret_cast<std::uint32_t*>(out), count);
      break;
    default:
      options.setInput(reinterpret_cast<std::uint64_t*>(in), count);
      options.setOutput(reinterpret_cast<std::uint64_t*>(out), count);
      break;
  }
}

class GlooOperation final : public Operation {
 public:
  explicit GlooOperation(std::shared_ptr<Flight> flight) : flight_(std::move(flight)) {}
  Result<Progress> step() override {
    if (!flight_->job.done.load(std::memory_order_acquire)) return Progress::kBlocked;
    if (!flight_->job.failure.empty())
      return Error{.code = Code::kPeerLost, .detail = "Gloo reports: " + flight_->job.failure};
    if (flight_->request.kind == Kind::kRecv && flight_->request.source) *flight_->request.source = flight_->source;
    if (flight_->result) std::memcpy(flight_->result, flight_->out.data(), flight_->out.size());
    return Progress::kDone;
  }
  void blockers(Blockers&) const override {}  // the worker notifies

 private:
  std::shared_ptr<Flight> flight_;
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(const BackendSetup& setup, Context context, std::unique_ptr<Worker> collectives)
      : setup_(setup), context_(std::move(context)), collectives_(std::move(collectives)) {}
  ~GlooBackend() override {
    if (!aborted_.load()) leave();
    abort();
  }

  Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t) override {
    auto flight = std::make_shared<Flight>();
    flight->request = request;
    flight->rank = setup_.rank;
    flight->size = setup_.size;
    flight->in_splits.assign(request.in_splits.begin(), request.in_splits.end());
    flight->out_splits.assign(request.out_splits.begin(), request.out_splits.end());
    flight->request.in_splits = flight->in_splits;
    flight->request.out_splits = flight->out_splits;
    take_buffers(*flight);
    const auto limit = in_milliseconds(request.limit.count() > 0 ? request.limit : setup_.limit);
    const std::shared_ptr<Job> job(flight, &flight->job);
    if (is_point_to_point(request.kind)) {
      try {
        const NoBrokenPipes guard;
        post(*flight);
      } catch (const std::exception& e) {
        return Error{.code = Code::kPeerLost, .detail = std::string("Gloo reports: ") + e.what()};
      }
      job->act = [flight, context = context_, limit] { wait_for(*flight, limit); };
      TUTTI_TRY(give_to_somebody(job));
      MutexLock lock(mutex_);
      std::erase_if(exchanges_, [](const auto& old) { return old.expired(); });
      exchanges_.push_back(flight);
    } else {
      job->act = [flight, context = context_, reduce = setup_.services.reduce_pair, limit] {
        carry(*flight, context, reduce, limit);
      };
      collectives_->give(job);
    }
    return std::unique_ptr<Operation>(std::make_unique<GlooOperation>(std::move(flight)));
  }

  void abort() override {
    aborted_.store(true);
    MutexLock lock(mutex_);
    for (const auto& weak : exchanges_)
      if (const auto flight = weak.lock()) {
        if (flight->request.kind == Kind::kSend)
          flight->buffer->abortWaitSend();
        else
          flight->buffer->abortWaitRecv();
      }
    context_->closeConnections();
  }

 private:
  using Reduce = void (*)(DType, ReduceOp, void*, const void*, std::size_t);

  // Closing a connection discards the bytes that the peer has not read yet. So all ranks try one more barrier, for at
  // most a second.
  void leave() {
    auto left = std::make_shared<std::promise<void>>();
    auto job = std::make_shared<Job>();
    job->act = [left, context = context_] {
      ::gloo::BarrierOptions options(context);
      options.setTimeout(kFarewell);
      try {
        ::gloo::barrier(options);
      } catch (const std::exception&) {  // the peers have already left, or do not leave
      }
      left->set_value();
    };
    collectives_->give(std::move(job));
    (void)left->get_future().wait_for(kFarewell);
  }

  void post(Flight& f) {
    Bytes& bytes = f.request.kind == Kind::kSend ? f.in : f.out;
    if (bytes.empty()) bytes.resize(1);  // Gloo cannot receive an empty message from any source
    f.buffer = context_->createUnboundBuffer(bytes.data(), bytes.size());
    const auto slot = std::uint64_t(std::uint32_t(f.request.tag));  // collectives use a prefix in the upper bits
    if (f.request.kind == Kind::kSend)
      f.buffer->send(f.request.root, slot);
    else
      f.buffer->recv(sources(f), slot);
  }

  static std::vector<int> sources(const Flight& f) {
    if (f.request.root != kAnySource) return {f.request.root};
    std::vector<int> others;
    for (int r = 0; r < f.size; ++r)
      if (r != f.rank) others.push_back(r);
    return others;
  }

  static void wait_for(Flight& f, std::chrono::milliseconds limit) {
    const bool ended =
        f.request.kind == Kind::kSend ? f.buffer->waitSend(nullptr, limit) : f.buffer->waitRecv(&f.source, limit);
    if (!ended) throw std::runtime_error("the wait was cancelled");
  }

  Status give_to_somebody(const std::shared_ptr<Job>& job) {
    auto idle = std::find_if(waiters_.begin(), waiters_.end(), [](const auto& waiter) { return waiter->is_idle(); });
    if (idle == waiters_.end()) idle = waiters_.insert(idle, TUTTI_TRY(Worker::start(setup_.notify)));
    (*idle)->give(job);
    return {};
  }

  // Gloo has no scans. Each rank gathers a block of all inputs and adds the inputs that belong to its result.
  template <class Add>
  static void scan(Flight& f, const Context& context, const Add& add, std::chrono::milliseconds limit) {
    const std::size_t n = std::size_t(f.size), added = std::size_t(summands(f.request.kind, f.rank, f.size));
    const std::size_t most = kScanBlock / n / f.element() * f.element();
    Bytes all(n * std::min(most, f.in.size()));
    for (std::size_t begin = 0; begin < f.in.size(); begin += most) {
      const std::size_t bytes = std::min(most, f.in.size() - begin);
      ::gloo::AllgatherOptions options(context);
      options.setInput(f.in.data() + begin, bytes);
      options.setOutput(all.data(), n * bytes);
      options.setTimeout(limit);
      ::gloo::allgather(options);
      if (added == 0) continue;
      std::uint8_t* const out = f.out.data() + begin;
      std::memcpy(out, all.data(), bytes);
      for (std::size_t r = 1; r < added; ++r) add(out, out, all.data() + r * bytes, bytes / f.element());
    }
  }

  // A reduce_scatter reduces all parts on every rank, which keeps its own.
  template <class Add>
  static void reduce(Flight& f, const Context& context, const Add& add, std::chrono::milliseconds limit) {
    const Request& r = f.request;
    if (f.in.empty()) return;
    const std::size_t count = f.in.size() / f.element();
    if (has_root(r.kind)) {
      ::gloo::ReduceOptions options(context);
      options.setRoot(r.root);
      set_typed(options, f, f.in.data(), f.out.data(), count);
      options.setReduceFunction(add);
      options.setTimeout(limit);
      ::gloo::reduce(options);
      return;
    }
    Bytes whole(gives_parts(r.kind) ? f.in.size() : 0);
    ::gloo::AllreduceOptions options(context);
    set_typed(options, f, f.in.data(), whole.empty() ? f.out.data() : whole.data(), count);
    options.setReduceFunction(add);
    options.setTimeout(limit);
    ::gloo::allreduce(options);
    if (whole.empty()) return;
    const std::size_t begin = Parts(r.count, r.in_splits).begin(f.rank) * f.element();
    std::copy_n(whole.begin() + std::ptrdiff_t(begin), f.out.size(), f.out.begin());
  }

  static void broadcast(Flight& f, const Context& context, std::chrono::milliseconds limit) {
    ::gloo::BroadcastOptions options(context);
    options.setRoot(f.request.root);
    if (f.rank == f.request.root) options.setInput(f.in.data(), f.bytes());
    options.setOutput(f.out.data(), f.bytes());
    options.setTimeout(limit);
    ::gloo::broadcast(options);
  }

  static void all_gather(Flight& f, const Context& context, std::chrono::milliseconds limit) {
    const Parts parts(f.request.count, f.request.out_splits);
    std::vector<std::size_t> counts;
    for (int from = 0; from < f.size; ++from) counts.push_back(parts.count(from) * f.element());
    ::gloo::AllgathervOptions options(context);
    options.setInput(f.in.data(), f.in.size());
    options.setOutput(f.out.data(), counts);
    options.setTimeout(limit);
    ::gloo::allgatherv(options);
  }

  static void gather(Flight& f, const Context& context, std::chrono::milliseconds limit) {
    ::gloo::GatherOptions options(context);
    options.setRoot(f.request.root);
    options.setInput(f.in.data(), f.bytes());
    if (f.rank == f.request.root) options.setOutput(f.out.data(), f.out.size());
    options.setTimeout(limit);
    ::gloo::gather(options);
  }

  static void scatter(Flight& f, const Context& context, std::chrono::milliseconds limit) {
    ::gloo::ScatterOptions options(context);
    options.setRoot(f.request.root);
    if (f.rank == f.request.root) {
      std::vector<std::uint8_t*> parts;
      for (int to = 0; to < f.size; ++to) parts.push_back(f.in.data() + std::size_t(to) * f.bytes());
      options.setInputs(parts, f.bytes());
    }
    options.setOutput(f.out.data(), f.bytes());
    options.setTimeout(limit);
    ::gloo::scatter(options);
  }

  // Copies between pairs of ranks. In an uneven gather or scatter only the parts of the root are not empty.
  static void exchange(Flight& f, const Context& context, std::chrono::milliseconds limit) {
    const Request& r = f.request;
    std::vector<std::int64_t> ins, outs;
    const auto bytes = [&](int from, int to) {
      if (!gives(r, from) || !gets(r, to)) return std::int64_t(0);
      return std::int64_t(stretch_of(r, f.rank, from, to).count * f.element());
    };
    for (int peer = 0; peer < f.size; ++peer) {
      ins.push_back(bytes(f.rank, peer));
      outs.push_back(bytes(peer, f.rank));
    }
    ::gloo::AlltoallvOptions options(context);
    options.setInput(f.in.data(), ins);
    options.setOutput(f.out.data(), outs);
    options.setTimeout(limit);
    ::gloo::alltoallv(options);
  }

  static void carry(Flight& f, const Context& context, Reduce reduce_pair, std::chrono::milliseconds limit) {
    const Request& r = f.request;
    const Verb& row = verb(r.kind);
    if (row.combine == Verb::Combine::kNothing) {
      ::gloo::BarrierOptions options(context);
      options.setTimeout(limit);
      ::gloo::barrier(options);
      return;
    }
    if (r.count == 0 && !has_splits(r)) return;
    const auto add = [&](void* out, const void* a, const void* b, std::size_t count) {
      // One of the inputs may be the output.
      if (out == b) std::swap(a, b);
      if (out != a) std::memcpy(out, a, count * f.element());
      reduce_pair(r.dtype, r.op, out, b, count);
    };
    if (is_scan(r.kind))
      scan(f, context, add, limit);
    else if (is_reduction(r.kind))
      reduce(f, context, add, limit);
    else if (row.in == Verb::Buffer::kNone)
      broadcast(f, context, limit);
    else if (row.in == Verb::Buffer::kVector && row.gets == Verb::Ranks::kAll)
      all_gather(f, context, limit);
    else if (has_root(r.kind) && row.splits == Verb::Splits::kNone)
      row.gets == Verb::Ranks::kRoot ? gather(f, context, limit) : scatter(f, context, limit);
    else
      exchange(f, context, limit);
  }

  const BackendSetup setup_;
  const Context context_;
  const std::unique_ptr<Worker> collectives_;
  std::vector<std::unique_ptr<Worker>> waiters_;  // used by the driver only
  std::atomic<bool> aborted_{false};
  Mutex mutex_;
  std::vector<std::weak_ptr<Flight>> exchanges_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const int tutti_backend_abi = kBackendAbi;

[[gnu::visibility("default")]] Backend* tutti_open_backend(const BackendSetup* setup, Error* error) {
  try {
    const NoBrokenPipes guard;  // threads that Gloo starts inherit it
    auto device = ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(setup->address.c_str()));
    auto context = std::make_shared<::gloo::rendezvous::Context>(setup->rank, setup->size);
    context->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(setup->deadline.remaining()));
    GlooStore store(*setup->store, setup->key, setup->deadline);
    context->connectFullMesh(store, device);
    auto collectives = Worker::start(setup->notify);
    if (collectives.ok()) return new GlooBackend(*setup, std::move(context), *std::move(collectives));
    *error = collectives.error();
    return nullptr;
  } catch (const std::exception& e) {
    *error = Error{.code = Code::kUnreachable,
                   .detail = std::string("Gloo could not connect the ranks: ") + e.what(),
                   .hint = "can all ranks reach one another at the addresses that they advertise?",
                   .address = setup->address};
    return nullptr;
  }
}
}

}  // namespace tutti::comm::gloo_engine
