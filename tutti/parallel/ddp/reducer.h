#pragma once
// The machine inside DataParallel, which does not depend on the type of the model.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace tutti {

class GradientTaker;

enum class Overlap {
  kAuto,  // kOn where this rank's share of the cores is more than its compute threads, else kOff
  kOn,    // start a bucket's all_reduce as soon as its gradients are there; the engine thread drives it
  kOff,   // in finish(), on the calling thread
};

struct DataParallelOptions {
  std::size_t first_bucket_bytes = std::size_t(1) << 20;  // small, so that the first all_reduce starts early
  std::size_t bucket_bytes = std::size_t(25) << 20;
  // Gradients from this size on are reduced where they lie, smaller ones packed.
  std::size_t in_place_bytes = std::size_t(256) << 10;
  Overlap overlap = Overlap::kAuto;
  bool broadcast_buffers = true;  // before each forward() of a module that trains
  // A parameter without a gradient counts as zero. One that no rank used keeps what it has: none after zero_grad(), but
  // zeros with `gradients_as_views`, which an optimizer takes for a gradient (momentum and weight decay go on).
  bool find_unused = false;
  bool gradients_as_views = false;  // .grad is a view into a bucket, for who keeps it; costs a zero and an addition
  // While this lives, large tensors are made in the group's memory, which fork() does not inherit: see HeapTensors.
  bool heap_tensors = true;
};

struct DataParallelStats {
  std::size_t steps = 0;       // finished, with communication
  double exposed_seconds = 0;  // in finish(), of all steps: communication that computing did not hide
  double last_exposed_seconds = 0;
  std::size_t bytes_per_step = 0;
  bool overlapped = false;
  std::vector<std::vector<std::string>> buckets;  // names of parameters, in the order of launch
};

class Reducer {
 public:
  // Compares the models and broadcasts parameters and buffers from rank 0. Throws Exception: models that differ (the
  // first difference with both sides), nothing to train, a parameter that is not on the CPU or not dense.
  Reducer(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options);
  ~Reducer();  // waits for what is in flight; in the unwinding of an exception ends it, and the group

  void before_forward();
  void finish();
  void zero_grad();
  void set_sync(bool on);
  DataParallelStats stats() const;

  // For an optimizer that averages the gradients itself: while one is attached nothing is reduced here, and nothing
  // written to `.grad`. One that is packed is let go as soon as it is packed.
  const Group& group() const;
  std::vector<at::Tensor> parameters() const;   // that are trained, each once, in the order of registration
  std::vector<std::string> names() const;       // of those
  bool is_large(std::size_t parameter) const;   // its gradient stays where backward() made it, others are packed
  void attach_optimizer(GradientTaker& taker);  // throws if one is attached
  void detach_optimizer();
  void count_exposed(double seconds);  // communication outside of finish()

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the hooks, which hold it weakly
};

}  // namespace tutti
