// A plan depends on the shape of a call, not on its buffers, so operations are kept by shape and begun again. The last
// one used is looked at first; the others are few enough for a walk. What is kept is bounded by number and by steps:
// beyond, the entry that was used longest ago goes.
#include "tutti/comm/planned_calls.h"

#include <algorithm>

namespace tutti {

PlannedCalls::PlannedCalls(std::span<Link* const> links, int rank, const Hosts& hosts, const Selector& selector)
    : links_(links), rank_(rank), hosts_(hosts), selector_(selector) {}

Result<Operation*> PlannedCalls::start(const Request& request, std::uint64_t sequence) {
  Shape shape = shape_of(request, rank_, int(links_.size()));
  shape.hosts = &hosts_;
  const Key key{.kind = request.kind,
                .algorithm = selector_.algorithm(request),
                .wire = wire_dtype(request),
                .in_place = shape.in_place,
                .root = has_root(request.kind) ? request.root : 0,
                .count = request.count};
  Entry* entry = find(key, request);
  if (!entry) {
    auto plan = std::make_shared<const Plan>(TUTTI_TRY(make_plan(key.algorithm, request.kind, shape)));
    Entry made{.key = key,
               .splits = {{request.in_splits.begin(), request.in_splits.end()},
                          {request.out_splits.begin(), request.out_splits.end()}},
               .steps = plan->steps.size()};
    made.operation = make_plan_operation(key.wire, std::move(plan), links_, rank_, int(links_.size()), memory_);
    make_room(made.steps);
    steps_ += made.steps;
    kept_.push_back(std::move(made));
    entry = &kept_.back();
  }
  last_ = std::size_t(entry - kept_.data());
  entry->used = ++calls_;
  entry->operation->begin(request, sequence);
  return entry->operation.get();
}

PlannedCalls::Entry* PlannedCalls::find(const Key& key, const Request& request) {
  const auto fits = [&](const Entry& entry) {
    return entry.key == key && std::ranges::equal(entry.splits[0], request.in_splits) &&
           std::ranges::equal(entry.splits[1], request.out_splits);
  };
  if (last_ < kept_.size() && fits(kept_[last_])) return &kept_[last_];
  const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  return found == kept_.end() ? nullptr : &*found;
}

// For one more plan, of so many steps.
void PlannedCalls::make_room(std::size_t steps) {
  while (!kept_.empty() && (kept_.size() == kKept || steps_ + steps > kKeptSteps)) {
    const auto oldest =
        std::min_element(kept_.begin(), kept_.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    steps_ -= oldest->steps;
    kept_.erase(oldest);
  }
}

}  // namespace tutti
