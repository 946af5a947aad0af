// Runs a plan. Steps wait in queues: one queue of sends and one of receives per peer, because a link is a byte stream
// in each direction, and one queue of local steps. Only the head of a queue can run, and only when its dependencies are
// done. Each call of step() tries every head once, so all peers and both directions progress together and step() never
// blocks.
//
// Data to add is received in chunks of the size of an L2 cache and added while it is in the cache. If both ranks share
// the memory, it is added directly from there. A stream has no element boundaries: the bytes of an incomplete element
// are carried over to the next chunk.
//
// For 16-bit sums the inputs are widened into a staging buffer, the plan runs in place on that buffer, and the results
// are rounded once. A premultiplied sum likewise runs on a multiplied copy of the input, as a plain sum.
#include "tutti/comm/links/executor.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/kernels/widen.h"
#include "tutti/comm/layout.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kChunk = 128 << 10;  // bytes: half of a small L2

// Such a plan runs on a copy of the input that was multiplied by the factor.
bool premultiplies(const Request& request) { return is_reduction(request.kind) && request.op == ReduceOp::kPremulSum; }

class Execution final : public PlanOperation {
 public:
  Execution(DType wire, std::shared_ptr<const Plan> plan, std::span<transport::Link* const> links, int rank, int size,
            PlanMemory& memory)
      : plan_(std::move(plan)), rank_(rank), size_(size), wire_(wire), element_(size_of(wire_)), memory_(memory) {
    done_.resize(plan_->steps.size());
    std::vector<int> lane_of(size, -1);
    std::size_t largest_reduced = 0;
    for (std::uint32_t i = 0; i < plan_->steps.size(); ++i) {
      const Step& step = plan_->steps[i];
      if (step.peer < 0) {
        local_.steps.push_back(i);
        continue;
      }
      if (lane_of[step.peer] < 0) {
        TUTTI_INVARIANT(links[step.peer] != nullptr, "no link to rank ", step.peer, " for a plan that needs one");
        lane_of[step.peer] = int(lanes_.size());
        lanes_.push_back(Lane{.peer = step.peer, .link = links[step.peer]});
      }
      Lane& lane = lanes_[lane_of[step.peer]];
      (step.kind == StepKind::kSend ? lane.sends : lane.recvs).steps.push_back(i);
      if (step.kind == StepKind::kRecvReduce) largest_reduced = std::max(largest_reduced, step.into.bytes);
    }
    chunk_bytes_ = std::min(kChunk, largest_reduced);
  }

  void begin(const Request& request, std::uint64_t sequence, CallRange piece) override {
    request_ = request;
    piece_ = piece;
    sequence_ = sequence;
    op_ = request.op == ReduceOp::kPremulSum ? ReduceOp::kSum : request.op;
    started_ = false;
    left_ = done_.size();
    done_.assign(left_, false);
    local_.rewind();
    for (Lane& lane : lanes_) {
      lane.header = header_of(request_, plan_->algorithm, sequence_, lane.peer);
      lane.header_sent = lane.header_received = lane.carried_bytes = 0;
      lane.sends.rewind();
      lane.recvs.rewind();
    }
    chunk_ = memory_.get(PlanMemory::kChunk, chunk_bytes_);
    const auto base = [this](void* buffer) {  // null where the rank has none
      return buffer ? static_cast<std::byte*>(buffer) + piece_.first * size_of(request_.dtype) : nullptr;
    };
    bases_[int(Area::kIn)] = base(const_cast<void*>(request_.in));  // no plan writes In
    bases_[int(Area::kOut)] = base(request_.out);
    bases_[int(Area::kScratch)] = memory_.get(PlanMemory::kScratch, plan_->scratch_bytes);
  }

  Result<Progress> step() override {
    if (!started_) start();
    bool moved = run_local();
    for (Lane& lane : lanes_) {
      moved |= TUTTI_TRY(send(lane));
      moved |= TUTTI_TRY(recv(lane));
    }
    moved |= run_local();
    if (left_ > 0) {
      if (!moved) TUTTI_TRY(look_for_strays());
      return moved ? Progress::kMoved : Progress::kBlocked;
    }
    finish();
    return Progress::kDone;
  }

  void blockers(Blockers& blockers) const override {
    for (const Lane& lane : lanes_) {
      const bool sends = head(lane.sends) != nullptr, recvs = head(lane.recvs) != nullptr;
      if (!sends && !recvs) continue;
      blockers.add(lane.peer, *lane.link, short((sends ? POLLOUT : 0) | (recvs ? POLLIN : 0)), awaited(lane));
    }
  }

 private:
  struct Queue {
    std::vector<std::uint32_t> steps;
    std::size_t next = 0;   // index into steps
    std::size_t moved = 0;  // bytes of the step `next`
    void rewind() { next = moved = 0; }
  };
  struct Lane {
    int peer;
    transport::Link* link;
    CallHeader header{};  // of this rank's call
    Queue sends{}, recvs{};
    std::size_t header_sent = 0, header_received = 0;  // bytes
    CallHeader came{};
    std::array<std::byte, 16> carried{};  // of an element whose end has not arrived
    std::size_t carried_bytes = 0;
  };

  // The step at the head of the queue if it can run now, otherwise null.
  const Step* head(const Queue& queue) const {
    if (queue.next == queue.steps.size()) return nullptr;
    const Step& step = plan_->steps[queue.steps[queue.next]];
    for (const std::uint32_t earlier : plan_->dependencies(step)) {
      if (!done_[earlier]) return nullptr;
    }
    return &step;
  }

  void complete(Queue& queue) {
    done_[queue.steps[queue.next]] = true;
    ++queue.next;
    queue.moved = 0;
    --left_;
  }

  // Bytes to wait for. It waits for the header alone first: a peer that makes another call may send fewer bytes than
  // this rank expects.
  std::size_t awaited(const Lane& lane) const {
    const Step* step = head(lane.recvs);
    if (!step || lane.header_received < sizeof lane.came) return 1;
    return std::max<std::size_t>(1, step->into.bytes - lane.recvs.moved - lane.carried_bytes);
  }

  std::byte* at(const Range& range) const { return bases_[int(range.area)] + range.offset; }

  void start() {
    started_ = true;
    if (!is_staged(request_)) return;
    const Parts parts(request_.count, request_.in_splits);
    const int count_of_parts = gives_parts(request_.kind) ? size_ : 1;
    std::size_t elements = 0;
    for (int part = 0; part < count_of_parts; ++part) elements += piece_.length(parts.count(part));
    std::byte* const staged = memory_.get(PlanMemory::kIn, elements * element_);
    std::byte* into = staged;
    for (int part = 0; part < count_of_parts; ++part) {
      const std::size_t count = piece_.length(parts.count(part));
      stage(parts.begin(part) + piece_.first, count, into);
      into += count * element_;
    }
    bases_[int(Area::kIn)] = staged;
    if (wire_ == request_.dtype) return;
    bases_[int(Area::kOut)] = staged;
    if (gives_parts(request_.kind)) bases_[int(Area::kOut)] = memory_.get(PlanMemory::kOut, results() * element_);
  }

  // Copies elements of the input, in wire_dtype(), multiplied if the op requires it.
  void stage(std::size_t first, std::size_t count, std::byte* into) {
    const void* from = static_cast<const std::byte*>(request_.in) + first * size_of(request_.dtype);
    if (wire_ != request_.dtype) {
      widen(request_.dtype, from, reinterpret_cast<float*>(into), count);
      from = into;
    }
    if (!premultiplies(request_)) return;
    void* const to[] = {into};
    reduce_many(wire_, ReduceOp::kPremulSum, {&from, 1}, to, count, 1, &request_.factor);
  }

  // Elements of the piece that this rank receives as the result.
  std::size_t results() const { return piece_.length(extent_of(request_, rank_, size_)->out); }

  void finish() {
    if (!is_reduction(request_.kind) || !gets(request_, rank_)) return;
    std::byte* const out = bases_[int(Area::kOut)];
    if (request_.op == ReduceOp::kAvg) divide(wire_, out, results(), summands(request_.kind, rank_, size_));
    if (wire_ != request_.dtype)
      narrow(request_.dtype, reinterpret_cast<const float*>(out),
             static_cast<std::byte*>(request_.out) + piece_.first * size_of(request_.dtype), results());
  }

  bool run_local() {
    bool any = false;
    while (const Step* step = head(local_)) {
      if (step->kind == StepKind::kCopy)
        std::memcpy(at(step->into), at(step->from), step->into.bytes);
      else
        reduce_pair(wire_, op_, at(step->into), at(step->from), step->into.bytes / element_);
      complete(local_);
      any = true;
    }
    return any;
  }

  Result<bool> send(Lane& lane) {
    const Step* step = head(lane.sends);
    if (!step) return false;
    const std::size_t header_left = sizeof lane.header - lane.header_sent;
    const iovec buffers[] = {{reinterpret_cast<std::byte*>(&lane.header) + lane.header_sent, header_left},
                             {at(step->from) + lane.sends.moved, step->from.bytes - lane.sends.moved}};
    std::size_t sent = 0;
    if (header_left + buffers[1].iov_len > 0) {
      auto result = lane.link->try_send(std::span(buffers).subspan(header_left > 0 ? 0 : 1));
      if (!result.ok()) return failed(lane, result.error());
      sent = *result;
      if (sent == 0) return false;
    }
    const std::size_t of_header = std::min(sent, header_left);
    lane.header_sent += of_header;
    lane.sends.moved += sent - of_header;
    if (lane.header_sent == sizeof lane.header && lane.sends.moved == step->from.bytes) complete(lane.sends);
    return true;
  }

  // Checks peers to which this rank cannot send and from which the plan expects nothing. If such a peer sends, in this
  // call or an earlier one, it makes another call than this rank, and both could wait forever. (A peer that is ahead
  // may already send for the next call.)
  Status look_for_strays() {
    for (Lane& lane : lanes_) {
      if (!lane.recvs.steps.empty() || head(lane.sends) == nullptr) continue;
      CallHeader stray;
      if (lane.link->peek(std::as_writable_bytes(std::span(&stray, 1))) < sizeof stray || stray.sequence > sequence_)
        continue;
      if (auto mismatch =
              compare(stray, expected_header(request_, plan_->algorithm, sequence_, lane.peer), request_, lane.peer))
        return failed(lane, *mismatch);
    }
    return {};
  }

  Result<bool> recv(Lane& lane) {
    const Step* step = head(lane.recvs);
    if (!step) return false;
    const bool reduces = step->kind == StepKind::kRecvReduce;
    if (reduces && add_from_link(lane, *step)) return true;
    const std::size_t header_left = sizeof lane.came - lane.header_received, left = step->into.bytes - lane.recvs.moved;
    iovec payload{at(step->into) + lane.recvs.moved, left};
    if (reduces) {
      if (lane.carried_bytes > 0) std::memcpy(chunk_, lane.carried.data(), lane.carried_bytes);
      payload = {chunk_ + lane.carried_bytes, std::min(left, chunk_bytes_) - lane.carried_bytes};
    }
    const iovec buffers[] = {{reinterpret_cast<std::byte*>(&lane.came) + lane.header_received, header_left}, payload};
    std::size_t got = 0;
    if (header_left + payload.iov_len > 0) {
      auto result = lane.link->try_recv(std::span(buffers).subspan(header_left > 0 ? 0 : 1));
      if (!result.ok()) return failed(lane, result.error());
      got = *result;
      if (got == 0) return false;
    }
    const std::size_t of_header = std::min(got, header_left);
    lane.header_received += of_header;
    if (lane.header_received < sizeof lane.came) return true;
    if (header_left > 0) {
      const CallHeader expected = expected_header(request_, plan_->algorithm, sequence_, lane.peer);
      if (auto mismatch = compare(lane.came, expected, request_, lane.peer)) return failed(lane, *mismatch);
    }
    if (reduces)
      add_chunk(lane, *step, got - of_header);
    else
      lane.recvs.moved += got - of_header;
    if (lane.recvs.moved == step->into.bytes) complete(lane.recvs);
    return true;
  }

  // Adds the whole elements that are in shared memory, and returns whether there were any. recv() handles the rest of a
  // message: its header, partial elements, a lost peer.
  bool add_from_link(Lane& lane, const Step& step) {
    if (lane.header_received < sizeof lane.came || lane.carried_bytes > 0) return false;
    const std::span<const std::byte> come = lane.link->front();
    const std::size_t count = std::min(come.size(), step.into.bytes - lane.recvs.moved) / element_;
    if (count == 0 || reinterpret_cast<std::uintptr_t>(come.data()) % element_ != 0) return false;
    add(lane, step, come.data(), count);
    lane.link->drop(count * element_);
    if (lane.recvs.moved == step.into.bytes) complete(lane.recvs);
    return true;
  }

  // The chunk holds the carried bytes and `came` new bytes. Adds the whole elements and carries the rest over.
  void add_chunk(Lane& lane, const Step& step, std::size_t came) {
    const std::size_t bytes = lane.carried_bytes + came, count = bytes / element_;
    add(lane, step, chunk_, count);
    lane.carried_bytes = bytes % element_;
    if (lane.carried_bytes > 0) std::memcpy(lane.carried.data(), chunk_ + count * element_, lane.carried_bytes);
  }

  void add(Lane& lane, const Step& step, const std::byte* others, std::size_t count) {
    std::byte* const into = at(step.into) + lane.recvs.moved;
    if (step.from == step.into) {
      reduce_pair(wire_, op_, into, others, count);
    } else {
      const void* const in[] = {at(step.from) + lane.recvs.moved, others};
      void* const out[] = {into};
      reduce_many(wire_, op_, in, out, count, 1);
    }
    lane.recvs.moved += count * element_;
  }

  Error failed(const Lane& lane, Error error) const {
    error.peer = lane.peer;
    error.address = lane.link->peer_address();
    error.operation = call_text(request_, sequence_);
    return error;
  }

  const std::shared_ptr<const Plan> plan_;
  const int rank_, size_;
  const DType wire_;
  const std::size_t element_;  // bytes
  PlanMemory& memory_;
  std::vector<Lane> lanes_;
  Queue local_;
  std::size_t chunk_bytes_ = 0;

  // State of the current call.
  Request request_;
  CallRange piece_;
  std::uint64_t sequence_ = 0;
  ReduceOp op_ = ReduceOp::kSum;  // that the plan uses
  bool started_ = false;
  std::vector<bool> done_;
  std::size_t left_ = 0;  // steps
  std::array<std::byte*, 3> bases_{};
  std::byte* chunk_ = nullptr;
};

}  // namespace

std::byte* PlanMemory::get(Use use, std::size_t bytes) {
  Block& block = blocks_[use];
  if (block.size < bytes) {
    block = {};
    block.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
    block.size = bytes;
  }
  return block.bytes.get();
}

bool is_staged(const Request& request) { return wire_dtype(request) != request.dtype || premultiplies(request); }

DType wire_dtype(const Request& request) {
  const bool rounds = request.op == ReduceOp::kSum || request.op == ReduceOp::kAvg ||
                      request.op == ReduceOp::kProduct || request.op == ReduceOp::kPremulSum;
  return is_reduction(request.kind) && rounds && is_16_bit_float(request.dtype) ? DType::kF32 : request.dtype;
}

Shape shape_of(const Request& request, int rank, int size, std::size_t segment) {
  const DType wire = wire_dtype(request);
  Shape shape{.rank = rank,
              .size = size,
              .root = request.root,
              .count = request.count,
              .element = size_of(wire),
              .segment = segment,
              .in_splits = request.in_splits,
              .out_splits = request.out_splits};
  const auto *in = static_cast<const std::byte*>(request.in), *out = static_cast<const std::byte*>(request.out);
  const bool widens = wire != request.dtype, multiplies = premultiplies(request);
  const std::size_t own = own_part_offset(request, rank);
  if (gives_parts(request.kind) && gets_parts(request.kind))
    shape.in_place = in == out;
  else if (gets_parts(request.kind))
    shape.in_place = out && in == out + own;
  else if (gives_parts(request.kind))
    shape.in_place = in && out == in + own && !widens && !multiplies;
  else if (is_reduction(request.kind))
    shape.in_place = widens || (in == out && !multiplies);  // a widened copy is both buffers
  return shape;
}

std::unique_ptr<PlanOperation> make_plan_operation(DType wire, std::shared_ptr<const Plan> plan,
                                                   std::span<transport::Link* const> links, int rank, int size,
                                                   PlanMemory& memory) {
  return std::make_unique<Execution>(wire, std::move(plan), links, rank, size, memory);
}

}  // namespace tutti::comm
