// LibTorch carries its ThreadLocalDebugInfo to the threads on which autograd runs the nodes of a GPU's tensors; a
// variable of the thread would stay behind.
#include "tutti/tensor/weight_gradients.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <iterator>
#include <utility>

namespace tutti {
namespace {

c10::DebugInfoKind kind_of_info() { return c10::DebugInfoKind::TEST_INFO_2; }  // LibTorch's own programs do not use it

struct Current final : c10::DebugInfoBase {
  explicit Current(WeightGradients& of) : gradients(&of) {}
  WeightGradients* const gradients;
};

}  // namespace

void WeightGradients::put(std::function<void()> work) { works_.push_back(std::move(work)); }

void WeightGradients::run() {
  std::vector<std::function<void()>> works = std::exchange(works_, {});
  std::size_t done = 0;
  try {
    for (; done < works.size(); ++done) std::exchange(works[done], nullptr)();
  } catch (...) {
    works.erase(works.begin(), works.begin() + std::ptrdiff_t(done) + 1);
    works_.insert(works_.begin(), std::move_iterator(works.begin()), std::move_iterator(works.end()));
    throw;
  }
}

WeightGradients* WeightGradients::current() {
  const auto* const current = static_cast<const Current*>(c10::ThreadLocalDebugInfo::get(kind_of_info()));
  return current ? current->gradients : nullptr;
}

WeightGradients::Scope::Scope(WeightGradients& gradients)
    : guard_(std::make_unique<c10::DebugInfoGuard>(kind_of_info(), std::make_shared<Current>(gradients))) {}
WeightGradients::Scope::~Scope() = default;

}  // namespace tutti
