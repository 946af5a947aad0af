#pragma once
// Inside a Reducer: how few processes compute as many logical ranks would, to the bit.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

// Gradients are added over a fixed binary tree, in which the parts [begin, end) are two halves that meet at
// (begin + end) / 2. A process that adds neighbouring parts which make a whole subtree, and then meets the others by
// the same tree, gets the same bits as one that adds all. (2^k processes whose number divides that of the parts do so,
// each with neighbouring parts: the upper levels of the tree lie between them.)
//
// The parts come in order. After part `part` of `parts`, this many pairs of neighbouring sums become one: a stack of
// sums adds its two topmost ones so many times.
constexpr int merges_after(int part, int parts) {
  int merges = 0;
  for (int begin = 0, end = parts; end - begin > 1;) {
    if (end == part + 1) ++merges;
    const int middle = begin + (end - begin) / 2;
    (part < middle ? end : begin) = middle;
  }
  return merges;
}

// The logical ranks of one process, which take their turns in each step: a forward() and backward() each. Gradients of
// all logical ranks are added over the tree above: its lower levels here, as gradients come, the upper ones between
// pairs of processes. Not thread-safe.
class LogicalRanks {
 public:
  // Collective. Throws Exception where the processes are no power of two, or do not divide `count`.
  LogicalRanks(const Group& group, int count, std::size_t gradients);

  int first() const { return first_; }
  int each() const { return each_; }  // of this process: [first, first + each)

  // The next one's turn. Throws Exception for one that is not next.
  void begin_turn(int number);
  bool has_begun() const { return turn_ >= 0; }
  bool is_last_turn() const { return turn_ == each_ - 1; }
  int turn() const { return turn_; }
  void end_step();  // also forgets what was kept

  // The gradient of the turn that ends, which is not the last.
  void keep(std::size_t gradient, at::Tensor value);
  // With that of the last turn: the sum of this process's. Once a step; the same again afterwards.
  at::Tensor sum(std::size_t gradient, const at::Tensor& last);

  // The groups, of this process and one other each, in which sums meet on their way up; the last one averages. The same
  // bits on both sides, for a + b is b + a.
  const std::vector<Group>& levels() const { return levels_; }
  // What makes the mean over the logical ranks of what came out of the last level.
  double factor() const { return factor_; }

  // Every logical rank starts from the buffers (running means) that the step began with, and rank 0 ends it with those
  // of logical rank 0, as DataParallel's ranks would.
  void begin_turn_of(const std::vector<NamedTensor>& buffers);
  void end_step_of(const std::vector<NamedTensor>& buffers);

 private:
  int each_, first_, turn_ = -1;
  std::vector<Group> levels_;
  double factor_ = 1;
  std::vector<std::vector<at::Tensor>> sums_;  // by gradient: a stack of subtrees
  std::vector<at::Tensor> begun_with_, first_ones_;
};

}  // namespace tutti
