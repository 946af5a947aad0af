// Every verb is two steps: turn the tensors into the Request that describes them (tensor_requests.cc), where all the
// checks are, and hand it to the group.
#include "tutti/tensor/collectives.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <utility>

#include "tutti/base/thread.h"
#include "tutti/tensor/tensor_place.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti {
namespace {

TensorWork start(const Group& group, const Request& request, std::initializer_list<at::Tensor> tensors, CallSite at) {
  return TensorWork(group.submit(request, at), tensors);
}

TensorWork start_pairs(const Group& group, Kind kind, std::span<const at::Tensor> ins, std::span<const at::Tensor> outs,
                       Reduction op, CallSite at) {
  TUTTI_REQUIRE(ins.size() == outs.size(), name(kind), "_coalesced: ", ins.size(), " inputs and ", outs.size(),
                " outputs");
  Coalesced together(group);
  std::vector<at::Tensor> tensors(ins.begin(), ins.end());
  tensors.insert(tensors.end(), outs.begin(), outs.end());
  for (std::size_t i = 0; i < ins.size(); ++i) together.add(tensor_requests::parts(group, kind, ins[i], outs[i], op));
  return TensorWork(together.submit(at), std::move(tensors));
}

}  // namespace

struct TensorWork::Flight {
  std::vector<at::Tensor> tensors;  // go last: until `work` is gone, the operations may use them
  std::variant<Work, Works, CoalescedWork> work;
  std::atomic<bool> left_to_stream{false};
  Unwinding unwinding{};
  ~Flight() {
    if (!unwinding.is_past() && !left_to_stream) (void)wait();  // else the work ends the operations
  }
  Status wait() const {
    return std::visit([](const auto& one) { return one.wait(); }, work);
  }
};

TensorWork::TensorWork(std::variant<Work, Works, CoalescedWork> work, std::vector<at::Tensor> tensors)
    : flight_(new Flight{.tensors = std::move(tensors), .work = std::move(work)}) {}

bool TensorWork::done() const {
  return !flight_ || std::visit([](const auto& one) { return one.done(); }, flight_->work);
}
Status TensorWork::wait() const { return flight_ ? flight_->wait() : Status(); }

void TensorWork::get_on_stream() const {
  if (!flight_) return;
  const auto* const work = std::get_if<Work>(&flight_->work);
  if (!work || !streams_are_shown() || !flight_->tensors.front().is_cuda()) return get();
  work->wait_on(place_of(flight_->tensors.front()).stream).or_throw();
  flight_->left_to_stream = true;
}

void run_on_stream(const Group& group, const Request& request, CallSite at) {
  if (request.device == kHost || !streams_are_shown())
    group.run(request, at).or_throw();
  else
    group.submit(request, at).wait_on(request.stream).or_throw();
}

void all_reduce(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  group.run(tensor_requests::all_reduce(tensor, op), at).or_throw();
}
TensorWork all_reduce_async(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  return start(group, tensor_requests::all_reduce(tensor, op), {tensor}, at);
}

void broadcast(const Group& group, const at::Tensor& tensor, int root, CallSite at) {
  group.run(tensor_requests::broadcast(group, tensor, root), at).or_throw();
}
TensorWork broadcast_async(const Group& group, const at::Tensor& tensor, int root, CallSite at) {
  return start(group, tensor_requests::broadcast(group, tensor, root), {tensor}, at);
}

void reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op, CallSite at) {
  group.run(tensor_requests::reduce(group, in, out, root, op), at).or_throw();
}
TensorWork reduce_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op,
                        CallSite at) {
  return start(group, tensor_requests::reduce(group, in, out, root, op), {in, out}, at);
}

void scan(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  group.run(tensor_requests::scan(group, Kind::kScan, in, out, op), at).or_throw();
}
TensorWork scan_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  return start(group, tensor_requests::scan(group, Kind::kScan, in, out, op), {in, out}, at);
}
void exscan(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  group.run(tensor_requests::scan(group, Kind::kExscan, in, out, op), at).or_throw();
}
TensorWork exscan_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  return start(group, tensor_requests::scan(group, Kind::kExscan, in, out, op), {in, out}, at);
}

void all_gather(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  group.run(tensor_requests::parts(group, Kind::kAllGather, in, out, ReduceOp::kSum), at).or_throw();
}
TensorWork all_gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  return start(group, tensor_requests::parts(group, Kind::kAllGather, in, out, ReduceOp::kSum), {in, out}, at);
}

void gather(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  group.run(tensor_requests::gather(group, in, out, root), at).or_throw();
}
TensorWork gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  return start(group, tensor_requests::gather(group, in, out, root), {in, out}, at);
}

void scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  group.run(tensor_requests::scatter(group, in, out, root), at).or_throw();
}
TensorWork scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  return start(group, tensor_requests::scatter(group, in, out, root), {in, out}, at);
}

void reduce_scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  group.run(tensor_requests::parts(group, Kind::kReduceScatter, in, out, op), at).or_throw();
}
TensorWork reduce_scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op,
                                CallSite at) {
  return start(group, tensor_requests::parts(group, Kind::kReduceScatter, in, out, op), {in, out}, at);
}

void all_to_all(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  group.run(tensor_requests::parts(group, Kind::kAllToAll, in, out, ReduceOp::kSum), at).or_throw();
}
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  return start(group, tensor_requests::parts(group, Kind::kAllToAll, in, out, ReduceOp::kSum), {in, out}, at);
}

void all_to_all(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
                std::span<const std::size_t> out_splits, CallSite at) {
  group.run(tensor_requests::uneven(in, in_splits, out, out_splits), at).or_throw();
}
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                            const at::Tensor& out, std::span<const std::size_t> out_splits, CallSite at) {
  return start(group, tensor_requests::uneven(in, in_splits, out, out_splits), {in, out}, at);
}

void send(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  isend(group, tensor, peer, tag, at).get();
}
void recv(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  irecv(group, tensor, peer, tag, at).get();
}
TensorWork isend(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  return start(group, tensor_requests::point(Kind::kSend, tensor, peer, tag), {tensor}, at);
}
TensorWork irecv(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  return start(group, tensor_requests::point(Kind::kRecv, tensor, peer, tag), {tensor}, at);
}

int recv_any(const Group& group, const at::Tensor& tensor, int tag, CallSite at) {
  std::int32_t source = kAnySource;
  irecv_any(group, tensor, source, tag, at).get();
  return source;
}
TensorWork irecv_any(const Group& group, const at::Tensor& tensor, std::int32_t& source, int tag, CallSite at) {
  Request request = tensor_requests::point(Kind::kRecv, tensor, kAnySource, tag);
  request.source = &source;
  return start(group, request, {tensor}, at);
}

TensorBatch::TensorBatch(const Group& group) : group_(group) {}
TensorBatch::~TensorBatch() = default;
TensorBatch& TensorBatch::send(const at::Tensor& tensor, int peer, int tag) {
  requests_.push_back(tensor_requests::point(Kind::kSend, tensor, peer, tag));
  tensors_.push_back(tensor);
  return *this;
}
TensorBatch& TensorBatch::recv(const at::Tensor& tensor, int peer, int tag) {
  requests_.push_back(tensor_requests::point(Kind::kRecv, tensor, peer, tag));
  tensors_.push_back(tensor);
  return *this;
}
TensorBatch& TensorBatch::recv_any(const at::Tensor& tensor, std::int32_t& source, int tag) {
  recv(tensor, kAnySource, tag);
  requests_.back().source = &source;
  return *this;
}
TensorWork TensorBatch::submit(CallSite at) {
  return TensorWork(group_.submit(std::exchange(requests_, {}), at), std::exchange(tensors_, {}));
}

void all_gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out,
                  std::span<const std::size_t> out_splits, CallSite at) {
  group.run(tensor_requests::everywhere_v(group, Kind::kAllGatherV, in, out, out_splits, ReduceOp::kSum), at)
      .or_throw();
}
TensorWork all_gather_v_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                              std::span<const std::size_t> out_splits, CallSite at) {
  return start(group, tensor_requests::everywhere_v(group, Kind::kAllGatherV, in, out, out_splits, ReduceOp::kSum),
               {in, out}, at);
}

void reduce_scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                      const at::Tensor& out, Reduction op, CallSite at) {
  group.run(tensor_requests::everywhere_v(group, Kind::kReduceScatterV, in, out, in_splits, op), at).or_throw();
}
TensorWork reduce_scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                                  const at::Tensor& out, Reduction op, CallSite at) {
  return start(group, tensor_requests::everywhere_v(group, Kind::kReduceScatterV, in, out, in_splits, op), {in, out},
               at);
}

void gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out, std::span<const std::size_t> out_splits,
              int root, CallSite at) {
  group.run(tensor_requests::gather_v(group, in, out, out_splits, root), at).or_throw();
}
TensorWork gather_v_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                          std::span<const std::size_t> out_splits, int root, CallSite at) {
  return start(group, tensor_requests::gather_v(group, in, out, out_splits, root), {in, out}, at);
}

void scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
               int root, CallSite at) {
  group.run(tensor_requests::scatter_v(group, in, in_splits, out, root), at).or_throw();
}
TensorWork scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                           const at::Tensor& out, int root, CallSite at) {
  return start(group, tensor_requests::scatter_v(group, in, in_splits, out, root), {in, out}, at);
}

TensorWork all_reduce_coalesced_async(const Group& group, std::span<const at::Tensor> tensors, Reduction op,
                                      CallSite at) {
  Coalesced together(group);
  for (const at::Tensor& tensor : tensors) together.add(tensor_requests::all_reduce(tensor, op));
  return TensorWork(together.submit(at), {tensors.begin(), tensors.end()});
}
void all_reduce_coalesced(const Group& group, std::span<const at::Tensor> tensors, Reduction op, CallSite at) {
  Coalesced together(group);
  for (const at::Tensor& tensor : tensors) together.add(tensor_requests::all_reduce(tensor, op));
  together.run(at);
}

TensorWork all_gather_coalesced_async(const Group& group, std::span<const at::Tensor> ins,
                                      std::span<const at::Tensor> outs, CallSite at) {
  return start_pairs(group, Kind::kAllGather, ins, outs, ReduceOp::kSum, at);
}
void all_gather_coalesced(const Group& group, std::span<const at::Tensor> ins, std::span<const at::Tensor> outs,
                          CallSite at) {
  all_gather_coalesced_async(group, ins, outs, at).get();
}
TensorWork reduce_scatter_coalesced_async(const Group& group, std::span<const at::Tensor> ins,
                                          std::span<const at::Tensor> outs, Reduction op, CallSite at) {
  return start_pairs(group, Kind::kReduceScatter, ins, outs, op, at);
}
void reduce_scatter_coalesced(const Group& group, std::span<const at::Tensor> ins, std::span<const at::Tensor> outs,
                              Reduction op, CallSite at) {
  reduce_scatter_coalesced_async(group, ins, outs, op, at).get();
}

}  // namespace tutti
