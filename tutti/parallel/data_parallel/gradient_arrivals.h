#pragma once
// Which gradients of a step are ready: when a bucket may be launched, and what is missing at the end.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// One thread at a time. Gradients are numbered; those that take part each have a number of arrivals that completes
// them, one unless learn() found another.
class GradientArrivals {
 public:
  explicit GradientArrivals(std::size_t gradients);

  // A step begins. While learning (a static graph's first step) no gradient is ever complete, and none comes too often.
  void begin_step();
  enum class Arrival { kNotYet, kComplete, kTooOften };
  Arrival note(std::size_t gradient);

  void start_learning() { learning_ = true; }
  bool learning() const { return learning_; }
  // How often each came in this step, of every step from now on. Those that never came do not take part any more.
  void learn(const std::vector<std::int64_t>& counts);
  void skip(std::size_t gradient) { expected_[gradient] = 0; }  // it is never waited for

  bool takes_part(std::size_t gradient) const { return learning_ || expected_[gradient] > 0; }
  bool came(std::size_t gradient) const { return arrived_[gradient] > 0; }
  bool complete(std::size_t gradient) const;
  std::int64_t arrived(std::size_t gradient) const { return arrived_[gradient]; }
  std::int64_t expected(std::size_t gradient) const { return expected_[gradient]; }
  const std::vector<std::int64_t>& counts() const { return arrived_; }

  bool all_came() const { return incomplete_ == 0; }
  bool none_came() const { return order_.empty(); }
  // Those that take part and are not complete, by number.
  std::vector<std::size_t> missing() const;
  // In the order in which they came first.
  const std::vector<std::size_t>& order() const { return order_; }

 private:
  std::vector<std::int64_t> expected_, arrived_;
  std::vector<std::size_t> order_;
  std::size_t incomplete_ = 0;
  bool learning_ = false;
};

}  // namespace tutti
