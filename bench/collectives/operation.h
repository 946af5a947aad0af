#pragma once
// The operations that `tutti bench` knows, one call of each, and the check of what the call did.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "bench/collectives/device_memory.h"
#include "tutti/comm/group.h"

namespace tutti::bench {

// How an operation is called.
enum class Form {
  kCollective,  // one Request
  kUneven,      // an all_to_all with splits
  kRing,        // each rank sends to the next and receives from the one before, at the same time
  kPingPong,    // neighbours 2k and 2k + 1 send a message there and back; a rank left over rests
  kBatch,       // half of the vector to either neighbour, one batch_isend_irecv
  kCoalesced,   // the vector in kCoalescedBuffers buffers, one coalesced call
  kBytes,       // comm/objects.h
  kJson,        // comm/json_objects.h
  kMonitored,   // monitored_barrier
};
inline constexpr std::size_t kCoalescedBuffers = 16;

struct Operation {
  const char* name;
  Form form;
  Kind kind;    // what it comes to
  bool splits;  // the vector is split in one part a rank; a vector with fewer elements than ranks is left out
  // Bytes over the busiest wire for a byte of the vector, n ranks, as nccl-tests defines them: bus bandwidth is that
  // times bytes / time.
  double (*bus_factor)(double ranks);
  // Vectors that the memory of all ranks together must move at least: each input is read once, each output written
  // once.
  double (*moved)(double ranks);
  bool reduces() const { return is_reduction(kind); }
  bool has_bytes() const { return kind != Kind::kBarrier; }
  bool in_place() const { return kind == Kind::kAllReduce || kind == Kind::kBroadcast; }
  // Vectors that a rank has in its hands, on average: its input and its output, which of an all_reduce are one.
  double footprint(double ranks) const { return moved(ranks) / ranks / (kind == Kind::kAllReduce ? 2 : 1); }
};

std::span<const Operation> operations();

// Which elements; `bytes` is the whole vector on a rank.
struct Size {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t bytes = 0;
};

// Of the size's bytes each; the caller's.
struct Buffers {
  std::byte *a = nullptr, *b = nullptr;
  DeviceBuffers* device = nullptr;  // if not null the operation works on its like of the two, on a GPU
};

// One operation on one size. Every rank of the group makes the same calls.
class Exercise {
 public:
  virtual ~Exercise() = default;
  // Numbers that are small, exact in every dtype, and different on each rank and at neighbouring places.
  virtual void write_pattern() = 0;
  virtual void write_zeros();
  // Reads and writes each byte of the input, and leaves it as it is: what a program does that computes before it calls.
  virtual void rewrite();
  virtual void call() = 0;  // throws Exception
  // The same, under way; what is no collective is carried out at once.
  virtual Work start() {
    call();
    return {};
  }
  // After write_pattern() and one call(): elements of the result on this rank that are not what they must be.
  virtual std::size_t count_wrong() const = 0;
  virtual std::string plan_name() const = 0;
  const Group& group() const { return group_; }
  const Operation& operation() const { return operation_; }
  const Size& size() const { return size_; }
  // Of the whole vector, as measured: whole parts of whole elements.
  std::size_t bytes() const { return count_ * size_of(size_.dtype); }

 protected:
  Exercise(const Group& group, const Operation& operation, Size size, Buffers buffers);
  // Where a request finds what is at this place of one of the buffers.
  std::byte* place(std::byte* host) const { return buffers_.device ? buffers_.device->on_device(host) : host; }
  int device() const { return buffers_.device ? buffers_.device->device() : kHost; }

  const Group& group_;
  const Operation& operation_;
  const Size size_;
  std::size_t count_;  // elements of the whole vector
  const Buffers buffers_;
  std::byte *const a_, *const b_;
};

// all_reduce and broadcast work in place in buffers.a, all else goes from a to b.
std::unique_ptr<Exercise> make_exercise(const Group& group, const Operation& operation, Size size, Buffers buffers);

}  // namespace tutti::bench
