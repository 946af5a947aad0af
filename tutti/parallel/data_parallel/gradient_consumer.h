#pragma once
// How a Reducer hands gradients to an optimizer that averages them itself.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// A gradient of this rank, not averaged; laid out like the parameter, without holes.
struct ConsumedGradient {
  std::size_t parameter = 0;  // in Reducer::parameters()
  at::Tensor value;
};

// Except for join_step(), called with the Reducer's lock held: must not call the Reducer, except group().
class GradientConsumer {
 public:
  virtual ~GradientConsumer() = default;
  // Whether consume() is called in backward(), on autograd's thread, as soon as a bucket is complete. The Reducer then
  // frees the gradients. Else it is called in finish(), and `.grad` of gradients that are not packed stays.
  virtual bool consumes_in_backward() const = 0;
  // The gradients of a bucket: the same buckets in the same order on every rank. A gradient that this rank has not made
  // is zeros. Packed ones are in `packed`, which is undefined if there are none, and are valid until the next
  // backward().
  virtual void consume(std::span<const ConsumedGradient> bucket, const at::Tensor& packed) = 0;
  // In finish(), after all buckets: which parameters any rank has used, and the factor that makes averages.
  virtual void finish_step(std::span<const std::uint8_t> used, double factor) = 0;
  // In join_uneven(), on a rank without data, after the reducer's step: makes the step of the ranks with data.
  virtual void join_step(int leader) = 0;
};

}  // namespace tutti
