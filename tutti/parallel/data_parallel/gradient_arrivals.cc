#include "tutti/parallel/data_parallel/gradient_arrivals.h"

#include <algorithm>

namespace tutti {

GradientArrivals::GradientArrivals(std::size_t gradients) : expected_(gradients, 1), arrived_(gradients, 0) {
  order_.reserve(gradients);
  begin_step();
}

void GradientArrivals::begin_step() {
  std::fill(arrived_.begin(), arrived_.end(), 0);
  order_.clear();
  incomplete_ = std::size_t(std::count_if(expected_.begin(), expected_.end(), [](auto n) { return n > 0; }));
}

GradientArrivals::Arrival GradientArrivals::note(std::size_t gradient) {
  const auto times = ++arrived_[gradient];
  if (times == 1) order_.push_back(gradient);
  if (learning_) return Arrival::kNotYet;
  const auto expected = expected_[gradient];
  if (times == expected) {
    --incomplete_;
    return Arrival::kComplete;
  }
  return times > expected ? Arrival::kTooOften : Arrival::kNotYet;
}

void GradientArrivals::learn(const std::vector<std::int64_t>& counts) {
  expected_ = counts;
  learning_ = false;
}

bool GradientArrivals::complete(std::size_t gradient) const {
  return !learning_ && expected_[gradient] > 0 && arrived_[gradient] >= expected_[gradient];
}

std::vector<std::size_t> GradientArrivals::missing() const {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (arrived_[i] < expected_[i]) missing.push_back(i);
  }
  return missing;
}

}  // namespace tutti
