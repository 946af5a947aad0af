#pragma once
// Replaces the all_reduce that averages the gradients of a bucket: to compress what is sent, or to average over some
// ranks or none. DataParallelOptions::hook.
//
//   class Halved final : public tutti::CommHook {
//    public:
//     std::string name() const override { return "halved"; }
//     Finish start(const tutti::Group& group, const tutti::GradientBucket& bucket) override {
//       auto work = tutti::all_reduce_async(group, bucket.buffer, tutti::ReduceOp::kAvg);
//       return [work, buffer = bucket.buffer] { return work.get(), buffer.div_(2); };
//     }
//   };
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// One bucket of this rank's gradients. Buckets are built again after the first step, in another order and size, and
// then stay as they are.
struct GradientBucket {
  std::size_t index = 0;  // in the order of launch
  bool is_last = false;
  at::Tensor buffer;  // [n]: all gradients, and zeros between them; not divided by anything
  double scale = 1;   // a LossScaler's: by so much they are too large, and so shall be the averages
  // finite_check found something in the last step, so its averages were for nothing: what a hook keeps from step to
  // step should be as before it.
  bool last_was_skipped = false;
  std::vector<std::string> names;  // of the parameters
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  // windows into `buffer`, each with the shape of its parameter
};

class CommHook {
 public:
  // Waits, and returns the averages: a tensor of buffer's size, type and device, which may be `buffer` itself.
  using Finish = std::function<at::Tensor()>;

  virtual ~CommHook() = default;
  // For errors, statistics, and the check that all ranks have the same; with its options, if ranks might differ in
  // them.
  virtual std::string name() const = 0;
  // Called once a bucket and step, in the order of buckets, on every rank: where communication overlaps, in the thread
  // that runs backward(), so what blocks here holds backward up. Calls on `group` that it makes must be the same on
  // every rank. The function returned is called in DataParallel::finish(), again in the order of buckets; it may make
  // further calls. Exceptions of both reach who called backward() or finish(). Never runs on two threads at once.
  virtual Finish start(const Group& group, const GradientBucket& bucket) = 0;
};

}  // namespace tutti
