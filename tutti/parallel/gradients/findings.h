#pragma once
// What a rank finds in the gradients of one step, and what all ranks make of it.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/finite.h"
#include "tutti/parallel/gradients/norm.h"

namespace tutti {

// The first gradient that is not finite, and the squares of averages. check() and add() do not wait for a GPU. What
// they find there is known after settle(), where the host waits once, however many gradients there are. One thread at a
// time.
struct GradientFindings {
  SumOfSquares squares;       // of this rank's averages
  SumOfSquares tail_squares;  // of averages that every rank has

  void note(const NonFinite& found);
  // Notes `found` if an element is not finite. Any floating-point type, and complex numbers. The values may be
  // overwritten afterwards.
  void check(const at::Tensor& values, const NonFinite& found);
  // The same of averages, whose squares are added to `into`, if given (f32 and f64). On a GPU the averages have to stay
  // as they are until settle().
  void add(const at::Tensor& averages, const NonFinite& found, SumOfSquares GradientFindings::*into = nullptr);
  void settle();
  // Of what is settled: the least NonFinite::number().
  std::int64_t first() const { return first_; }
  // Every rank calls: a barrier. Settles. The first of all ranks.
  std::optional<NonFinite> agree(const Group& group);

 private:
  struct Open {  // on a GPU, not read yet
    at::Tensor values;
    NonFinite found;
    SumOfSquares GradientFindings::*into;
  };
  void take(const Open& open, const SumOfSquares& squares_of_open);
  std::int64_t first_ = NonFinite::kNone;
  std::vector<Open> open_;
};

using ParameterName = std::function<const std::string&(std::size_t parameter)>;

// Every rank of `group` calls, and of `model` (if given: the ranks that have the whole model together). Settles. The
// sentence about the first gradient that is not finite; empty: all gradients are finite.
std::string non_finite_over_ranks(const Group& group, const Group& model, GradientFindings& findings,
                                  const ParameterName& name);
// Likewise. The norm of all averages, the same on every rank.
GradientNorm norm_over_ranks(const Group& group, const Group& model, GradientFindings& findings,
                             const ParameterName& name);

}  // namespace tutti
