#pragma once
// Several collectives of one group as one call: started together and waited for together. Small ones of one kind,
// element type, op and root are packed and travel as one, so that many small buffers cost one meeting instead of one
// each.
//
//   Coalesced together(group);
//   together.add(requests::all_reduce(std::span(loss), ReduceOp::kAvg));
//   together.add(requests::all_reduce(std::span(seen), ReduceOp::kSum));
//   together.run();                       // or: CoalescedWork work = together.submit(); ... work.get();
//
// The calls of one Coalesced are independent: no one's output is another's input. All ranks add the same calls in the
// same order. Sums are in the same order as those of one longer vector.
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// What was submitted. Copies share it. The outputs are valid once wait() has returned; the last copy that goes waits.
class CoalescedWork {
 public:
  CoalescedWork() = default;
  // Whether wait() would return at once.
  bool done() const;
  Status wait() const;
  void get() const { wait().or_throw(); }

 private:
  friend class Coalesced;
  struct Flight;
  explicit CoalescedWork(std::shared_ptr<Flight> flight) : flight_(std::move(flight)) {}
  std::shared_ptr<Flight> flight_;
};

// One thread at a time.
class Coalesced {
 public:
  explicit Coalesced(const Group& group) : group_(group) {}
  // Any collective, the buffers of which stay until the end. Splits are copied.
  void add(const Request& request);
  std::size_t size() const { return requests_.size(); }
  // Starts all that was added since the last time. If one call cannot be right none is started: the work says why.
  CoalescedWork submit(CallSite at = CallSite::here());
  // The same on the calling thread, to its end. Throws.
  void run(CallSite at = CallSite::here());

 private:
  std::shared_ptr<CoalescedWork::Flight> pack();
  Group group_;
  std::vector<Request> requests_;
  std::vector<std::vector<std::size_t>> splits_;
};

}  // namespace tutti
