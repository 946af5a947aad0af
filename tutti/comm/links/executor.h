#pragma once
// Runs any Plan over Links.
//
// On each link and in each direction the first message of an operation starts with a CallHeader: group sequence number,
// kind, dtype, op, root, count and plan. A receiver whose own call differs fails with kMismatch at once. The error text
// shows both calls.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "tutti/comm/links/call_header.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"
#include "tutti/transport/link.h"

namespace tutti::comm {

// The type in which the elements of a request are transferred and added. Sums, averages and products of f16 and bf16
// run in f32. They are converted once before the plan and rounded once after it, so a sum over many ranks loses only
// one rounding. All other operations keep their type.
DType wire_dtype(const Request& request);

// The Shape of a request for an algorithm, in elements of wire_dtype(). Borrows the splits of the request.
Shape shape_of(const Request& request, int rank, int size, std::size_t segment = Shape{}.segment);

// Reusable memory for the operations of a group. Only one operation of a group runs at a time.
class PlanMemory {
 public:
  enum Use { kScratch, kChunk, kIn, kOut };
  std::byte* get(Use use, std::size_t bytes);  // contents undefined; valid until the next get() for this use

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  Block blocks_[4];
};

// A range of elements of a call: of its vector, or of each part if it has one part per rank.
struct CallRange {
  std::size_t first = 0, count = ~std::size_t(0);
  // The elements of the piece in a part of `part` elements.
  std::size_t length(std::size_t part) const { return first < part ? std::min(count, part - first) : 0; }
};

// A plan in progress. After it has finished, begin() may start it again for a request of the same shape.
class PlanOperation : public Operation {
 public:
  // Allocates only from the PlanMemory, and only the first time. A piece that is not the whole call needs a plan for
  // its own shape, and its call must be staged (is_staged()) or have no parts.
  virtual void begin(const Request& request, std::uint64_t sequence, CallRange piece = {}) = 0;
};

// Whether the plan runs on a copy of the input: for 16-bit sums, which run in f32, and premultiplied sums.
bool is_staged(const Request& request);

// Operations of requests like `request`, by a plan that was made with shape_of(request, rank, size). links[r] leads to
// rank r of the group (null for this rank and for ranks that the plan does not name); they, the buffers and the memory
// must outlive the operation. Errors carry operation, peer and address; the group adds its name, the rank and times.
std::unique_ptr<PlanOperation> make_plan_operation(DType wire, std::shared_ptr<const Plan> plan,
                                                   std::span<transport::Link* const> links, int rank, int size,
                                                   PlanMemory& memory);

}  // namespace tutti::comm
