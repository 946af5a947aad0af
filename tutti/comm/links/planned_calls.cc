// A plan depends on the shape of a call, not on its buffers, so operations are cached by shape and restarted. The
// lookup tries the last used operation first and then scans the others, which are few. Both the number of cached
// operations and their total steps are bounded; beyond, the least recently used entry is evicted.
//
// Memory is bounded as well. Some plans need a copy of the vector: 16-bit sums run in f32, and an inner rank of a tree
// adds into its own memory. These run on pieces of the vector, one after another, through the same memory.
#include "tutti/comm/links/planned_calls.h"

#include <algorithm>

namespace tutti::comm {

PlannedCalls::PlannedCalls(std::span<transport::Link* const> links, int rank, const Hosts& hosts,
                           const Selector& selector)
    : links_(links), rank_(rank), hosts_(hosts), selector_(selector) {}

// Staged copies and scratch memory are proportional to the vector, by the same factor on all ranks, so all ranks cut at
// the same positions.
Result<Operation*> PlannedCalls::start(const Request& request, std::uint64_t sequence) {
  const bool sums_aside =
      request.kind == Kind::kReduce || selector_.algorithm(request) == Algorithm::kRecursiveDoubling;
  if (is_staged(request) || (is_reduction(request.kind) && !gives_parts(request.kind) && sums_aside)) {
    const bool parts = gives_parts(request.kind);
    const std::size_t longest = request.in_splits.empty() ? request.count : std::ranges::max(request.in_splits);
    const std::size_t most = kStaging / size_of(wire_dtype(request)) / (parts ? links_.size() : 1);
    if (longest > most) {
      TUTTI_TRY(in_pieces_.begin(request, sequence, longest, std::max<std::size_t>(most, 1)));
      return &in_pieces_;
    }
  }
  return TUTTI_TRY(begin(request, sequence, {}));
}

Status PlannedCalls::InPieces::begin(const Request& request, std::uint64_t sequence, std::size_t longest,
                                     std::size_t count_in_piece) {
  request_ = request;
  sequence_ = sequence;
  longest_ = longest;
  piece_ = {.first = 0, .count = count_in_piece};
  now_ = TUTTI_TRY(calls_.begin(request_, sequence_, piece_));
  return {};
}

Result<Progress> PlannedCalls::InPieces::step() {
  const Progress progress = TUTTI_TRY(now_->step());
  if (progress != Progress::kDone) return progress;
  piece_.first += piece_.count;
  if (piece_.first >= longest_) return Progress::kDone;
  now_ = TUTTI_TRY(calls_.begin(request_, sequence_, piece_));
  return Progress::kMoved;
}

Result<PlanOperation*> PlannedCalls::begin(const Request& request, std::uint64_t sequence, CallRange piece) {
  Shape shape = shape_of(request, rank_, int(links_.size()));
  shape.hosts = &hosts_;
  shape.count = piece.length(shape.count);
  if (piece.first > 0 || piece.count < ~std::size_t(0)) {
    splits_.clear();
    for (const std::size_t part : request.in_splits) splits_.push_back(piece.length(part));
    shape.in_splits = splits_;
  }
  const Key key{.kind = request.kind,
                .algorithm = selector_.algorithm(request),
                .wire = wire_dtype(request),
                .in_place = shape.in_place,
                .root = has_root(request.kind) ? request.root : 0,
                .count = shape.count};
  Entry* entry = find(key, shape);
  if (!entry) {
    auto plan = std::make_shared<const Plan>(TUTTI_TRY(make_plan(key.algorithm, request.kind, shape)));
    Entry made{.key = key,
               .splits = {{shape.in_splits.begin(), shape.in_splits.end()},
                          {shape.out_splits.begin(), shape.out_splits.end()}},
               .steps = plan->steps.size()};
    made.operation = make_plan_operation(key.wire, std::move(plan), links_, rank_, int(links_.size()), memory_);
    make_room(made.steps);
    steps_ += made.steps;
    kept_.push_back(std::move(made));
    entry = &kept_.back();
  }
  last_ = std::size_t(entry - kept_.data());
  entry->used = ++calls_;
  entry->operation->begin(request, sequence, piece);
  return entry->operation.get();
}

PlannedCalls::Entry* PlannedCalls::find(const Key& key, const Shape& shape) {
  const auto fits = [&](const Entry& entry) {
    return entry.key == key && std::ranges::equal(entry.splits[0], shape.in_splits) &&
           std::ranges::equal(entry.splits[1], shape.out_splits);
  };
  if (last_ < kept_.size() && fits(kept_[last_])) return &kept_[last_];
  const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  return found == kept_.end() ? nullptr : &*found;
}

// Evicts plans until one more plan of `steps` fits.
void PlannedCalls::make_room(std::size_t steps) {
  while (!kept_.empty() && (kept_.size() == kKept || steps_ + steps > kKeptSteps)) {
    const auto oldest =
        std::min_element(kept_.begin(), kept_.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    steps_ -= oldest->steps;
    kept_.erase(oldest);
  }
}

}  // namespace tutti::comm
