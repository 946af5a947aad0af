#include "backend.h"

#include <ATen/Functions.h>
#include <pthread.h>
#include <pybind11/pybind11.h>

#include <algorithm>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"
#include "tutti/runtime/init.h"

namespace tutti::python {
namespace {

using std::chrono::milliseconds;

constexpr const char* kShutDown = "tutti: this process group was shut down";
constexpr Duration kLongestFarewell = std::chrono::seconds(10);  // for calls under way at a shutdown

// The number of forks between the first process and this one. A child has none of its parent's threads, so the
// parent's groups do not work in it.
std::atomic<int> forks{0};
int count_of_forks() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)installed;
  return forks;
}

// Python code may wait for the GIL while this thread blocks.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// The texts of PyTorch's errors contain the C++ stack.
template <class Act>
auto without_stack(Act act) {
  try {
    return act();
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

rendezvous::ForeignStore store_of(const c10::intrusive_ptr<c10d::Store>& store) {
  return {.set =
              [store](const std::string& key, const std::string& value) {
                without_stack([&] { store->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
              },
          .get =
              [store](const std::string& key, Duration limit) {
                return without_stack([&] {
                  store->wait({key}, std::max(milliseconds(1), std::chrono::ceil<milliseconds>(limit)));
                  const std::vector<std::uint8_t> value = store->get(key);
                  return std::string(value.begin(), value.end());
                });
              },
          .add = [store](const std::string& key) { return without_stack([&] { return store->add(key, 1); }); },
          .has = [store](const std::string& key) { return without_stack([&] { return store->check({key}); }); }};
}

// That of torch's default group, within which the other groups are made.
Mutex world_mutex;
c10::weak_intrusive_ptr<TuttiBackend> world TUTTI_GUARDED_BY(world_mutex){c10::intrusive_ptr<TuttiBackend>{}};

}  // namespace

c10::intrusive_ptr<TuttiBackend> TuttiBackend::create(const c10d::DistributedBackendOptions& options) {
  const auto timeout = std::chrono::ceil<milliseconds>(options.timeout);
  const std::vector<int> ranks(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  const std::string name = options.group_id.empty() ? "world" : options.group_id;
  c10::intrusive_ptr<TuttiBackend> parent;
  {
    const MutexLock lock(world_mutex);
    parent = world.lock();
  }
  if (!ranks.empty() && parent && parent->getError() == c10d::ErrorType::SUCCESS)
    return c10::make_intrusive<TuttiBackend>(or_raise(parent->group().group_of_members(ranks, name, timeout)), timeout);
  // The default group, or a group beside a default group of another backend, which is a world of its own.
  auto made = c10::make_intrusive<TuttiBackend>(
      or_raise(init_as_guest(store_of(options.store),
                             {.rank = options.group_rank,
                              .world_size = options.group_size,
                              .name = name,
                              .library = "torch.distributed",
                              .other_backend = "gloo",
                              .other_key = "0/"},
                             {.join_timeout = timeout, .collective_timeout = timeout})),
      timeout);
  if (ranks.empty()) {
    const MutexLock lock(world_mutex);
    world = made;
  }
  return made;
}

TuttiBackend::TuttiBackend(Group group, milliseconds timeout)
    : Backend(group.rank(), group.size()), timeout_(timeout), forks_(count_of_forks()), group_(std::move(group)) {
  init();
}

TuttiBackend::~TuttiBackend() { leave(); }

Group TuttiBackend::group_or_none() const {
  const MutexLock lock(mutex_);
  return group_;
}

Group TuttiBackend::group() const {
  require_no_fork();
  Group group = group_or_none();
  TORCH_CHECK(group, kShutDown);
  return group;
}

void TuttiBackend::require_no_fork() const {
  TORCH_CHECK(
      forks.load(std::memory_order_relaxed) == forks_,
      "tutti: a process that was forked cannot use the process groups of its parent. Make no calls in workers of "
      "a DataLoader, or start the process with spawn and call init_process_group() there");
}

c10::intrusive_ptr<c10d::Backend::Options> TuttiBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("tutti", timeout_.load());
}

c10d::ErrorType TuttiBackend::getError() {
  const Group group = group_or_none();
  if (!group) return c10d::ErrorType::COMM_ERROR;
  const Status status = group.status();
  if (status.ok()) return c10d::ErrorType::SUCCESS;
  return status.error().code == Code::kTimeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
}

void TuttiBackend::abort() {
  const WithoutGil without_gil;
  require_no_fork();
  hooks_->failed.run();
  if (const Group group = group_or_none())
    group.abort({.code = Code::kAborted, .detail = "torch.distributed aborted the group"});
}

#if TORCH_VERSION_MINOR >= 15
// The hook of PyTorch's flight recorder writes a file into the user's home when a call fails, which the user has to ask
// for.
bool TuttiBackend::supportsAbortHooks() const {
  const auto wants = env("TORCH_FR_DUMP_ON_TIMEOUT").value_or("");
  return env("TORCH_FR_DUMP_TEMP_FILE") || wants == "1" || wants == "true";
}
#endif

void TuttiBackend::shutdown() {
  {
    const MutexLock lock(world_mutex);
    if (world.lock().get() == this) world.reset();
  }
  leave();
}

// The handles of calls may outlive this, and keep the buffers of their calls themselves.
void TuttiBackend::leave() {
  const WithoutGil without_gil;
  std::vector<std::shared_ptr<Submitted>> under_way;  // outlives the group, whose calls use these buffers
  Group leaving;
  {
    const MutexLock lock(mutex_);
    leaving = std::exchange(group_, Group());
    under_way.swap(under_way_);
  }
  const Deadline deadline = Deadline::after(kLongestFarewell);
  for (const auto& call : under_way) {
    if (call->complete_within(deadline.remaining())) continue;
    leaving.abort({.code = Code::kAborted, .detail = "the process group was shut down before its calls had ended"});
    call->complete();
  }
}

c10::intrusive_ptr<c10d::Backend> TuttiBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& options) {
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
  const Group parent = group();
  std::vector<int> global;
  for (const int r : ranks) global.push_back(parent.global_ranks()[std::size_t(r)]);
  const milliseconds timeout = options ? options->timeout : timeout_.load();
  const std::string name = options && !options->group_name.empty() ? options->group_name : parent.name() + "/split";
  return c10::make_intrusive<TuttiBackend>(or_raise(parent.group_of_members(global, name, timeout)), timeout);
}

void TuttiBackend::startCoalescing() {
  const MutexLock lock(mutex_);
  coalesced_[std::this_thread::get_id()].clear();  // an exception may have skipped the last endCoalescing()
}

// The calls of this thread have been submitted one after another, also those that are not asynchronous: this is their
// common end.
TuttiBackend::WorkHandle TuttiBackend::endCoalescing() {
  std::vector<std::shared_ptr<Submitted>> calls;
  {
    const MutexLock lock(mutex_);
    auto of_thread = coalesced_.extract(std::this_thread::get_id());
    TORCH_CHECK(of_thread, "tutti: endCoalescing() without startCoalescing() of the same thread");
    calls = std::move(of_thread.mapped());
  }
  auto call = std::make_unique<Call>(c10d::OpType::COALESCED, "tutti:coalesced", Tensors());
  for (const auto& one : calls)
    call->results.insert(call->results.end(), one->call().results.begin(), one->call().results.end());
  auto handle = c10::make_intrusive<TorchWork>(rank_, *call, sequence_.load(), timeout_.load(), hooks_);
  handle->begin(std::make_shared<Submitted>(std::move(call), std::move(calls), handle->on_end()));
  return handle;
}

milliseconds TuttiBackend::limit_of(milliseconds given) const {
  return given == c10d::kUnsetTimeout ? timeout_.load() : given;
}

TuttiBackend::WorkHandle TuttiBackend::start(CallOwner call, bool asynchronous, milliseconds limit,
                                             bool is_collective) {
  require_no_fork();
  Group group;
  {
    const MutexLock lock(mutex_);
    group = group_;
    asynchronous = asynchronous || coalesced_.contains(std::this_thread::get_id());
  }
  TORCH_CHECK(group, kShutDown);
  call->place_requests();
  limit = limit_of(limit);
  for (Request& request : call->requests) request.limit = std::max(limit, milliseconds(1));
  const std::uint64_t sequence = is_collective ? ++sequence_ : sequence_.load();
  auto handle = c10::make_intrusive<TorchWork>(rank_, *call, sequence, limit, hooks_);
  if (!asynchronous && call->requests.size() == 1) {
    const Status status = group.run(call->requests.front());
    auto ended = std::make_shared<Submitted>(std::move(call), status, handle->on_end());
    handle->begin(std::move(ended));
    sweep();
    return handle;
  }
  sweep();
  Works works = group.submit(std::span<const Request>(call->requests));
  auto submitted = std::make_shared<Submitted>(std::move(call), std::move(works), handle->on_end());
  handle->begin(submitted);
  const MutexLock lock(mutex_);
  if (const auto of_thread = coalesced_.find(std::this_thread::get_id()); of_thread != coalesced_.end())
    of_thread->second.push_back(submitted);
  under_way_.push_back(std::move(submitted));
  return handle;
}

// Forgets calls that have ended, once their results are where they belong: nobody may have waited for them.
void TuttiBackend::sweep() {
  std::vector<std::shared_ptr<Submitted>> ended;  // goes without the lock: a tensor may take the GIL
  {
    const MutexLock lock(mutex_);
    const auto first =
        std::partition(under_way_.begin(), under_way_.end(), [](const auto& call) { return !call->done(); });
    ended.assign(std::make_move_iterator(first), std::make_move_iterator(under_way_.end()));
    under_way_.erase(first, under_way_.end());
  }
  for (const auto& call : ended) call->complete();
}

at::Tensor TuttiBackend::allocateTensor(long elements, at::TensorOptions options) {
  auto memory = or_raise(group().allocate(std::size_t(elements) * options.dtype().itemsize()));
  void* const data = memory.get();
  return at::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) mutable { memory.reset(); }, options.device(at::kCPU));
}

}  // namespace tutti::python
