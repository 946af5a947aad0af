// Operations that are one Request, or many that are called as one.
#include <numeric>

#include "bench/collectives/exercises.h"
#include "bench/collectives/pattern.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/layout.h"

namespace tutti::bench {
namespace {

class CollectiveExercise : public Exercise {
 public:
  CollectiveExercise(const Group& group, const Operation& operation, Size size, Buffers buffers)
      : Exercise(group, operation, size, buffers), pattern_{size.dtype, size.op, group.size()} {
    const std::size_t ranks = std::size_t(group.size());
    request_ = {.kind = operation.kind,
                .dtype = size.dtype,
                .op = size.op,
                .in = place(a_),
                .out = place(b_),
                .count = operation.splits ? count_ / ranks : count_};
    if (operation.in_place()) request_.out = place(a_);
    request_.device = device();
    if (size.op == ReduceOp::kPremulSum) request_.factor = Pattern::factor(group.rank());
    if (operation.kind == Kind::kBarrier) request_ = {.kind = Kind::kBarrier};
    if (is_uneven(operation.kind)) split_for_v();
    if (operation.form == Form::kUneven) {
      splits_ = splits_of(group.rank());
      request_.in_splits = request_.out_splits = splits_;
      request_.count = 0;
    }
  }

  void write_pattern() override {
    write_zeros();
    pattern_.write(group_.rank(), a_, count_);
  }
  void call() override { group_.run(request_).or_throw(); }
  Work start() override { return group_.submit(request_); }
  std::string plan_name() const override { return group_.plan_name(request_); }

  std::size_t count_wrong() const override {
    const std::byte* const result = operation_.in_place() ? a_ : b_;
    const std::size_t count = result_count(), width = size_of(size_.dtype);
    if (!gets_parts(operation_.kind))
      return pattern_.count_wrong(result, count, [&](std::size_t i) { return expected(i, 0); });
    std::size_t wrong = 0;
    const comm::Parts parts(request_.count, splits_);
    for (int part = 0; part < group_.size() && count > 0; ++part)
      wrong += pattern_.count_wrong(result + parts.begin(part) * width, parts.count(part),
                                    [&](std::size_t i) { return expected(i, part); });
    return wrong;
  }

 private:
  // Parts that grow from rank to rank.
  std::size_t grown(std::size_t rank) const {
    const std::size_t ranks = std::size_t(group_.size());
    const auto begin = [&](std::size_t r) { return count_ * r * (r + 1) / (ranks * (ranks + 1)); };
    return begin(rank + 1) - begin(rank);
  }
  void split_for_v() {
    for (int rank = 0; rank < group_.size(); ++rank) splits_.push_back(grown(std::size_t(rank)));
    request_.count = has_root(operation_.kind) ? splits_[std::size_t(group_.rank())] : 0;
    if (!has_root(operation_.kind) || group_.rank() == request_.root)
      (gives_parts(operation_.kind) ? request_.in_splits : request_.out_splits) = splits_;
  }
  // all_to_all_v: what rank `rank` sends to, and so receives from, each.
  std::vector<std::size_t> splits_of(int rank) const {
    std::vector<std::size_t> splits;
    for (int peer = 0; peer < group_.size(); ++peer)
      splits.push_back(grown(std::size_t((rank + peer) % group_.size())));
    return splits;
  }
  // Where in the vector of rank `giver` this rank's part begins.
  std::size_t mine_in(int giver) const {
    if (operation_.form != Form::kUneven) return comm::Parts(request_.count, splits_).begin(group_.rank());
    const auto splits = splits_of(giver);
    return std::accumulate(splits.begin(), splits.begin() + group_.rank(), std::size_t(0));
  }

  // What must stand at `element` of part `part` of the result (a result that has no parts is one).
  double expected(std::size_t element, int part) const {
    const Kind kind = operation_.kind;
    const int from = gets_parts(kind) ? part : 0;  // the root is rank 0
    const std::size_t place = (gives_parts(kind) ? mine_in(from) : 0) + element;
    if (!is_reduction(kind)) return pattern_.brought(from, place);
    return pattern_.reduced(place, summands(kind, group_.rank(), group_.size()));
  }

  std::size_t result_count() const {
    if (is_point_to_point(operation_.kind)) return 0;
    return comm::elements_of(request_, group_.rank(), group_.size()).out;
  }

 protected:
  const Pattern pattern_;
  Request request_;

 private:
  std::vector<std::size_t> splits_;
};

// An all_reduce of the same vector, which lies in several buffers.
class CoalescedExercise : public CollectiveExercise {
 public:
  using CollectiveExercise::CollectiveExercise;
  void call() override {
    Coalesced together(group_);
    for (std::size_t i = 0; i < kCoalescedBuffers; ++i) {
      const std::size_t begin = count_ * i / kCoalescedBuffers, end = count_ * (i + 1) / kCoalescedBuffers;
      Request piece = request_;
      piece.in = piece.out = place(a_) + begin * size_of(size_.dtype);
      piece.count = end - begin;
      together.add(piece);
    }
    together.run();
  }
  Work start() override {
    call();
    return {};
  }
};

class MonitoredExercise : public Exercise {
 public:
  using Exercise::Exercise;
  MonitoredExercise(const Group& group, const Operation& operation, Size size, Buffers buffers)
      : Exercise(group, operation, size, buffers) {}
  void write_pattern() override {}
  void call() override { monitored_barrier(group_); }
  std::size_t count_wrong() const override { return 0; }
  std::string plan_name() const override { return "store"; }
};

}  // namespace

std::unique_ptr<Exercise> make_collective(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  if (operation.form == Form::kCoalesced) return std::make_unique<CoalescedExercise>(group, operation, size, buffers);
  return std::make_unique<CollectiveExercise>(group, operation, size, buffers);
}

std::unique_ptr<Exercise> make_monitored(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  return std::make_unique<MonitoredExercise>(group, operation, size, buffers);
}

}  // namespace tutti::bench
