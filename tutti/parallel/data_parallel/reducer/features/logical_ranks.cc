#include "tutti/parallel/data_parallel/reducer/features/logical_ranks.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <bit>
#include <utility>

namespace tutti {
namespace {

std::vector<at::Tensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> made;
  for (const auto& named : tensors) made.push_back(named.tensor.clone());
  return made;
}

void restore(const std::vector<NamedTensor>& tensors, const std::vector<at::Tensor>& values) {
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].tensor.copy_(values[i]);
}

// What would fit: "start 1, 2 or 4 processes, or let the number of logical ranks be a multiple of 8".
std::string remedy(int logical_ranks, int processes) {
  if (logical_ranks < 1) return "take 1 or more logical ranks";
  std::string numbers = "1";
  int most = 1;
  while (logical_ranks % (2 * most) == 0) {
    most *= 2;
    numbers += fmt::format("{}{}", logical_ranks % (2 * most) == 0 ? ", " : " or ", most);
  }
  const std::string start = fmt::format("start {} process{}", numbers, most == 1 ? "" : "es");
  if (!std::has_single_bit(unsigned(processes))) return start;
  return fmt::format("{}, or let the number of logical ranks be a multiple of {}", start, processes);
}

}  // namespace

LogicalRanks::LogicalRanks(const Group& group, int count, std::size_t gradients)
    : each_(count / group.size()), first_(group.rank() * each_), sums_(gradients) {
  const int processes = group.size();
  if (count < 1 || count % processes != 0 || !std::has_single_bit(unsigned(processes))) {
    throw Exception(Error{
        .code = Code::kInvalidArgument,
        .detail =
            fmt::format("DataParallel: {} logical ranks on {} processes; expected a power of two of processes whose "
                        "number divides the logical ranks'",
                        count, processes),
        .hint = remedy(count, processes),
        .group = group.name(),
        .rank = group.rank()});
  }
  for (int bit = 1; bit < processes; bit *= 2) {
    levels_.push_back(
        processes == 2
            ? group
            : group.split(group.rank() & ~bit, group.rank(), fmt::format("{} level {}", group.name(), bit)).or_throw());
  }
  factor_ = (processes > 1 ? 2.0 : 1.0) / count;
}

void LogicalRanks::begin_turn(int number) {
  const int next = first_ + turn_ + 1;
  if (turn_ + 1 == each_ || number != next) {
    throw Exception(Error{
        .code = Code::kInvalidArgument,
        .detail = fmt::format("DataParallel: begin_logical_rank({}), but {} on this process, which carries {} to {}",
                              number, turn_ + 1 == each_ ? "all have had their turn" : fmt::format("{} is next", next),
                              first_, first_ + each_ - 1),
        .hint = "go through logical_ranks() in order, each with a forward() and a backward(), and call finish() after "
                "them"});
  }
  ++turn_;
}

void LogicalRanks::end_step() {
  turn_ = -1;
  for (auto& stack : sums_) stack.clear();
}

void LogicalRanks::keep(std::size_t gradient, at::Tensor value) {
  auto& stack = sums_[gradient];
  stack.push_back(std::move(value));
  for (int merges = merges_after(turn_, each_); merges > 0; --merges) {
    const at::Tensor right = std::move(stack.back());
    stack.pop_back();
    stack.back().add_(right);
  }
}

at::Tensor LogicalRanks::sum(std::size_t gradient, const at::Tensor& last) {
  if (sums_[gradient].empty()) return last;
  keep(gradient, last);
  const at::Tensor all = std::move(sums_[gradient].back());
  sums_[gradient].clear();
  return all;
}

void LogicalRanks::begin_turn_of(const std::vector<NamedTensor>& buffers) {
  if (each_ == 1 || buffers.empty()) return;
  if (turn_ == 0) {
    begun_with_ = copies(buffers);
    return;
  }
  if (turn_ == 1 && first_ == 0) first_ones_ = copies(buffers);
  restore(buffers, begun_with_);
}

void LogicalRanks::end_step_of(const std::vector<NamedTensor>& buffers) {
  if (each_ > 1 && first_ == 0 && !buffers.empty()) restore(buffers, first_ones_);
}

}  // namespace tutti
