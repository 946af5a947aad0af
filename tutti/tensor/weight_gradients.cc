#include "tutti/tensor/weight_gradients.h"

#include <iterator>
#include <utility>

namespace tutti {
namespace {

thread_local WeightGradients* current_gradients = nullptr;

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

WeightGradients* WeightGradients::current() { return current_gradients; }

WeightGradients::Scope::Scope(WeightGradients& gradients) : before_(std::exchange(current_gradients, &gradients)) {}
WeightGradients::Scope::~Scope() { current_gradients = before_; }

}  // namespace tutti
