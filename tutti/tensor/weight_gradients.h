#pragma once
// Deferred weight gradients. A schedule that fills its bubbles (zero bubble: Qi et al., 2023) splits backward in two. B
// is the gradient of the input, which another stage waits for. W is the gradient of the weights, which no stage waits
// for.
//
//   WeightGradients later;
//   {
//     WeightGradients::Scope scope(later);
//     torch::autograd::backward({output}, {gradient});    // B: layers that know this put their W into `later`
//   }
//   ...
//   later.run();                                          // W: the gradients are in .grad of the parameters
//
// The layers of parallel/tensor/linear.h support it. Their deferred work holds the input and the output's gradient
// until it has run. The Scope counts for the thread that makes it, and for the threads on which autograd runs a
// backward() that this thread calls.
//
// run() writes into .grad outside of any graph. No hook of the parameter sees it, so a reducer that counts hooks
// (DataParallel) finds the gradient missing. Average such gradients after run(), as a whole.
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace c10 {
class DebugInfoGuard;
}

namespace tutti {

// One thread at a time.
class WeightGradients {
 public:
  WeightGradients() = default;
  WeightGradients(const WeightGradients&) = delete;
  WeightGradients(WeightGradients&&) = default;
  WeightGradients& operator=(WeightGradients&&) = default;

  void put(std::function<void()> work);
  // In the order of put(); frees each when it has run. If one throws, those after it stay.
  void run();
  bool empty() const { return works_.empty(); }
  std::size_t size() const { return works_.size(); }

  // Where a layer that runs backward now puts its work. nullptr: it computes at once.
  static WeightGradients* current();
  // While this object exists, `later` is the current one of the thread. Scopes nest.
  class Scope {
   public:
    explicit Scope(WeightGradients& gradients);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::unique_ptr<c10::DebugInfoGuard> guard_;
  };

 private:
  std::vector<std::function<void()>> works_;
};

}  // namespace tutti
