#pragma once
// Several collectives of one group as one call: started together and waited for together. Small ones of the same kind,
// element type, op and root are packed into one collective, so many small buffers cost one instead of one each.
//
//   Coalesced together(group);
//   together.add(requests::all_reduce(std::span(loss), ReduceOp::kAvg));
//   together.add(requests::all_reduce(std::span(seen), ReduceOp::kSum));
//   together.run();                       // or: CoalescedWork work = together.submit(); ... work.get();
//
// The calls of one Coalesced are independent: no output is the input of another call. All ranks add the same calls in
// the same order. Sums are added in the same order as those of one longer vector.
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// Submitted calls. Copies share them. The outputs are valid once wait() has returned. The destructor of the last copy
// waits.
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
  // Any collective. Its buffers have to stay until it has ended; splits are copied.
  void add(const Request& request);
  std::size_t size() const { return requests_.size(); }
  // Starts all calls added since the last time. If one is invalid, none is started, and the work has the error.
  CoalescedWork submit(CallSite at = CallSite::here());
  // Carries them out on the calling thread. Throws.
  void run(CallSite at = CallSite::here());

 private:
  std::shared_ptr<CoalescedWork::Flight> pack();
  Group group_;
  std::vector<Request> requests_;
  std::vector<std::vector<std::size_t>> splits_;
};

}  // namespace tutti
