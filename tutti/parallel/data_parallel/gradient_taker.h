#pragma once
// How a Reducer hands gradients to an optimizer that averages them itself.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// A gradient of this rank, not averaged; laid out like the parameter, without holes.
struct TakenGradient {
  std::size_t parameter = 0;  // in Reducer::parameters()
  at::Tensor value;
};

// Called with the Reducer's lock held, if nothing else is said: must not call it, except for group().
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;
  // Whether take() is called in backward(), on autograd's thread, as soon as a bucket is complete, and the Reducer then
  // forgets its gradients; else in finish(), and `.grad` of what is not packed stays.
  virtual bool takes_in_backward() const = 0;
  // The gradients of a bucket: the same buckets in the same order on every rank; one that this rank has not made is
  // zeros. Packed ones lie in `packed`, which is undefined if there are none, and are good until the next backward().
  virtual void take(std::span<const TakenGradient> bucket, const at::Tensor& packed) = 0;
  // In finish(), after all buckets: which parameters any rank has used, by parameter; and what their averages are to be
  // multiplied by.
  virtual void taken(std::span<const std::uint8_t> used, double factor) = 0;
  // In join_uneven(), on a rank without data, after a finish() in shadow: makes the step of the others with them.
  // Called without the Reducer's lock.
  virtual void shadow_step(int leader) = 0;
};

}  // namespace tutti
