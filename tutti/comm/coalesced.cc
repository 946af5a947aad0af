// A pack is one call that replaces several calls. Its buffers are the concatenated buffers of the calls. If those have
// a part per rank, they are concatenated part by part:
//
//   reduce_scatter of a and b on two ranks:   a0 a1, b0 b1   ->   a0 b0 a1 b1
//
// All ranks know what decides which calls are packed (kind, type, op, root, count) and the order of the calls, so all
// ranks make the same packs. From some size on, copying costs more than a separate call. In shared memory a call takes
// about a microsecond, so that size is small. Premultiplied sums are not packed, because each call and rank has its own
// factor. GPU memory is not packed, because the host cannot copy it.
#include "tutti/comm/coalesced.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tutti/base/thread.h"
#include "tutti/comm/group/group_state.h"

namespace tutti {
namespace {

constexpr std::size_t kPackedDirect = 4 << 10;  // largest bytes of a packed call in shared memory
constexpr std::size_t kPackedLinks = 64 << 10;  // largest bytes of a packed call over links
constexpr std::size_t kMostOfAPack = 256 << 10;

bool takes_parts(Kind kind) { return kind == Kind::kGather || kind == Kind::kAllGather || kind == Kind::kAllToAll; }
// Bytes of the larger one of its two buffers.
std::size_t bytes_of(const Request& r, int size) {
  const std::size_t parts = gives_parts(r.kind) || takes_parts(r.kind) ? std::size_t(size) : 1;
  return r.count * parts * size_of(r.dtype);
}

bool can_be_packed(const Request& r, int size, std::size_t most) {
  const bool regular = !is_uneven(r.kind) && r.in_splits.empty() && r.kind != Kind::kBarrier;
  return regular && r.device == kHost && r.op != ReduceOp::kPremulSum && r.count <= most && bytes_of(r, size) <= most;
}
bool go_together(const Request& a, const Request& b) {
  return a.kind == b.kind && a.dtype == b.dtype && (!is_reduction(a.kind) || a.op == b.op) &&
         (!has_root(a.kind) || a.root == b.root);
}

struct CoalescedPack {
  std::vector<Request> calls;
  std::size_t bytes = 0;  // of the larger buffer
  Request request;        // the call that is submitted
  std::shared_ptr<std::byte> in, out;

  Status fill(const Group& group);
  void empty(const Group& group);

 private:
  // Copies between the buffers of the calls and the buffer of the pack, part by part.
  template <class Copy>
  void each_stretch(std::size_t parts, Copy copy) const {
    const std::size_t element = size_of(request.dtype);
    std::size_t before = 0;  // elements of a part
    for (const Request& call : calls) {
      for (std::size_t p = 0; p < parts && call.count > 0; ++p)
        copy(call, p * call.count * element, (p * request.count + before) * element, call.count * element);
      before += call.count;
    }
  }
};

Status CoalescedPack::fill(const Group& group) {
  request = calls.front();
  if (calls.size() == 1) return {};
  request.count = 0;
  for (const Request& call : calls) request.count += call.count;
  const std::size_t n = std::size_t(group.size()), part = request.count * size_of(request.dtype);
  const std::size_t ins = gives_parts(request.kind) ? n : 1, outs = takes_parts(request.kind) ? n : 1;
  in = TUTTI_TRY(group.allocate(ins * part));
  out = ins == 1 && outs == 1 ? in : TUTTI_TRY(group.allocate(outs * part));
  const bool reads = request.kind != Kind::kBroadcast && request.kind != Kind::kScatter;
  if (reads || group.rank() == request.root)
    each_stretch(ins, [&](const Request& call, std::size_t from, std::size_t to, std::size_t bytes) {
      const void* const given = request.kind == Kind::kBroadcast ? call.out : call.in;
      std::memcpy(in.get() + to, static_cast<const std::byte*>(given) + from, bytes);
    });
  request.in = in.get();
  request.out = out.get();
  return {};
}

void CoalescedPack::empty(const Group& group) {
  if (calls.size() == 1) return;
  const bool root = group.rank() == request.root;
  if ((request.kind == Kind::kReduce || request.kind == Kind::kGather) && !root) return;
  if (request.kind == Kind::kBroadcast && root) return;
  each_stretch(takes_parts(request.kind) ? std::size_t(group.size()) : 1,
               [&](const Request& call, std::size_t to, std::size_t from, std::size_t bytes) {
                 std::memcpy(static_cast<std::byte*>(call.out) + to, out.get() + from, bytes);
               });
}

std::vector<CoalescedPack> make_packs(std::span<const Request> requests, int size, std::size_t most) {
  std::vector<CoalescedPack> packs;
  for (const Request& request : requests) {
    const bool packs_well = can_be_packed(request, size, most);
    const std::size_t bytes = packs_well ? bytes_of(request, size) : 0;
    const auto open = std::find_if(packs.begin(), packs.end(), [&](const CoalescedPack& pack) {
      return packs_well && can_be_packed(pack.calls.front(), size, most) && go_together(pack.calls.front(), request) &&
             pack.bytes + bytes <= kMostOfAPack;
    });
    CoalescedPack& pack = open == packs.end() ? packs.emplace_back() : *open;
    pack.calls.push_back(request);
    pack.bytes += bytes;
  }
  return packs;
}

}  // namespace

struct CoalescedWork::Flight {
  Group group;
  Status failed;  // an error before anything was started
  std::vector<CoalescedPack> packs;
  std::vector<std::vector<std::size_t>> splits;  // of the packs' requests
  Works works;
  std::once_flag emptied;
  const Unwinding unwinding{};

  explicit Flight(const Group& of) : group(of) {}
  Flight(const Flight&) = delete;
  ~Flight() {
    if (!unwinding.is_past()) (void)works.wait();  // otherwise the Works end the pending calls
    works = Works();                               // before the memory is freed
  }
};

bool CoalescedWork::done() const { return !flight_ || flight_->works.done(); }

Status CoalescedWork::wait() const {
  if (!flight_) return {};
  if (!flight_->failed.ok()) return flight_->failed;
  TUTTI_TRY(flight_->works.wait());
  std::call_once(flight_->emptied, [this] {
    for (CoalescedPack& pack : flight_->packs) pack.empty(flight_->group);
  });
  return {};
}

void Coalesced::add(const Request& request) {
  TUTTI_REQUIRE(!is_point_to_point(request.kind), "Coalesced: ", to_string(request),
                " is no collective (hint: batch_isend_irecv starts sends and receives together)");
  requests_.push_back(request);
  for (auto* splits : {&requests_.back().in_splits, &requests_.back().out_splits}) {
    if (splits->empty()) continue;
    splits_.emplace_back(splits->begin(), splits->end());
    *splits = splits_.back();
  }
}

// Prepares all added calls for their start.
std::shared_ptr<CoalescedWork::Flight> Coalesced::pack() {
  auto flight = std::make_shared<CoalescedWork::Flight>(group_);
  flight->splits = std::move(splits_);
  const std::vector<Request> requests = std::exchange(requests_, {});
  splits_.clear();
  const comm::GroupState& state = group_.state();
  for (const Request& request : requests)
    if (flight->failed = state.validate(request); !flight->failed.ok()) return flight;
  const std::size_t most = group_.size() == 1 ? 0 : state.is_direct() ? kPackedDirect : kPackedLinks;
  flight->packs = make_packs(requests, group_.size(), most);
  for (CoalescedPack& pack : flight->packs)
    if (flight->failed = pack.fill(group_); !flight->failed.ok()) return flight;
  return flight;
}

CoalescedWork Coalesced::submit(CallSite at) {
  const auto flight = pack();
  if (flight->failed.ok()) {
    std::vector<Request> calls;
    for (const CoalescedPack& pack : flight->packs) calls.push_back(pack.request);
    flight->works = group_.submit(calls, at);
  }
  return CoalescedWork(flight);
}

void Coalesced::run(CallSite at) {
  const auto flight = pack();
  flight->failed.or_throw();
  for (CoalescedPack& pack : flight->packs) {
    group_.run(pack.request, at).or_throw();
    pack.empty(group_);
  }
}

}  // namespace tutti
