#pragma once
// The core of Reducer, and the interface of its features. For the files of this folder alone.
#include <ATen/core/Tensor.h>

#include <optional>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/comm/agree.h"
#include "tutti/parallel/data_parallel/buckets.h"
#include "tutti/parallel/data_parallel/gradient_arrivals.h"
#include "tutti/parallel/data_parallel/option_pairs.h"
#include "tutti/parallel/data_parallel/reducer/finite.h"
#include "tutti/parallel/data_parallel/reducer/parts.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

// "once", "3 times"
std::string times(std::int64_t count);

class ReducerFeature;

struct Reducer::State : std::enable_shared_from_this<Reducer::State> {
  State(std::shared_ptr<torch::nn::Module> model, const Group& world, const DataParallelOptions& given);
  ~State();

  // reducer_buckets.cc: the parameters, and where their gradients are packed.
  void collect_parameters() TUTTI_REQUIRES(mutex);
  void install_hooks() TUTTI_REQUIRES(mutex);
  void make_buckets(const std::vector<std::size_t>& order) TUTTI_REQUIRES(mutex);
  std::vector<Bucket> buckets_of(const std::vector<std::size_t>& order) TUTTI_REQUIRES(mutex);
  void pack(Bucket& bucket, const PlannedBucket& plan) TUTTI_REQUIRES(mutex);
  std::vector<std::size_t> numbers_of(Route route) const TUTTI_REQUIRES(mutex);
  std::vector<NamedTensor> not_ignored(std::vector<NamedTensor> tensors) const;

  // reducer.cc: a step.
  void on_gradient(std::size_t index) TUTTI_EXCLUDES(mutex);
  void finish_step(Give give) TUTTI_REQUIRES(mutex);
  void adopt_observed_order() TUTTI_REQUIRES(mutex);
  void begin_step() TUTTI_REQUIRES(mutex);
  void end_works(std::vector<Bucket>& list) TUTTI_REQUIRES(mutex);

  // reducer_reduction.cc: from gradients to averages.
  void launch(Bucket& bucket, Give give) TUTTI_REQUIRES(mutex);
  at::Tensor laid_out_like_the_parameter(const Parameter& parameter, Give give) const TUTTI_REQUIRES(mutex);
  void fill_window(std::size_t parameter, Give give) TUTTI_REQUIRES(mutex);
  std::vector<GradientRange> ranges_of(const Bucket& bucket) const TUTTI_REQUIRES(mutex);
  void start(Bucket& bucket, const GradientRange& range) TUTTI_REQUIRES(mutex);
  void wait_for(std::vector<Bucket>& buckets) TUTTI_REQUIRES(mutex);
  void average_with_peers(std::vector<Bucket>& buckets) TUTTI_REQUIRES(mutex);
  void write_back(const std::vector<std::size_t>& numbers, const std::vector<std::uint8_t>& used) TUTTI_REQUIRES(mutex);
  double average_factor() const TUTTI_REQUIRES(mutex);
  std::vector<std::uint8_t> used_anywhere(bool exchange, Give give) const TUTTI_REQUIRES(mutex);

  // reducer_checks.cc: messages about what cannot be right.
  Error mistake(std::string detail, std::string hint) const;
  [[noreturn]] void end_group(std::string detail, std::string hint) const;  // on every rank, with this message
  void require_sensible_options() const TUTTI_REQUIRES(mutex);
  // By the table of option_pairs.cc; `added`: what is about to be used.
  void require_no_excluded_pair(bool DataParallelUse::*added = nullptr) const TUTTI_REQUIRES(mutex);
  void require_something_to_train() const TUTTI_REQUIRES(mutex);
  std::vector<NamedValue> named_options() const;
  void require_all_ready() const TUTTI_REQUIRES(mutex);
  [[noreturn]] void reject_repeated_gradient(std::size_t parameter) const TUTTI_REQUIRES(mutex);
  [[noreturn]] void throw_non_finite() const TUTTI_REQUIRES(mutex);
  void require_layout(const Parameter& parameter, const at::Tensor& gradient) const;

  std::shared_ptr<torch::nn::Module> module;
  Group group;
  DataParallelOptions options;
  bool overlap = false;
  bool peers_average = false;  // in finish(), each its part of what peers can reach, for all: alike on every rank
  const Unwinding unwinding{};

  mutable Mutex mutex;  // hooks may run on autograd's threads
  std::vector<Parameter> parameters TUTTI_GUARDED_BY(mutex);
  std::vector<at::Tensor> ignored TUTTI_GUARDED_BY(mutex);  // parameters that only zero_grad() uses
  std::vector<Bucket> buckets TUTTI_GUARDED_BY(mutex);
  std::optional<GradientArrivals> arrivals TUTTI_GUARDED_BY(mutex);
  std::size_t next_bucket TUTTI_GUARDED_BY(mutex) = 0;  // the first that was not launched
  bool launches_in_backward TUTTI_GUARDED_BY(mutex) = false;
  bool writes_back TUTTI_GUARDED_BY(mutex) = true;  // false: somebody else averages the gradients
  int leader TUTTI_GUARDED_BY(mutex) = 0;           // whose buffers and order of buckets all ranks take
  bool order_is_final TUTTI_GUARDED_BY(mutex) = false;
  bool sync TUTTI_GUARDED_BY(mutex) = true;
  double gradient_scale TUTTI_GUARDED_BY(mutex) = 1;
  FiniteChecks finite TUTTI_GUARDED_BY(mutex);
  DataParallelStats totals TUTTI_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<ReducerFeature>> features TUTTI_GUARDED_BY(mutex);
};

// A feature that a step can do without: its state and its code are in one file of features/. The core calls each hook
// for every feature, in the order of Reducer's constructor, with its lock held.
class ReducerFeature {
 public:
  using State = Reducer::State;
  virtual ~ReducerFeature() = default;

  virtual void add_use(const State&, DataParallelUse&) const {}  // for the table of excluded pairs
  // forward() of a step that trains. False: the feature broadcasts the buffers itself.
  virtual bool before_forward(State& core) TUTTI_REQUIRES(core.mutex) { return unused(core), true; }
  // backward() added to a gradient. False: the gradient takes no part in this backward()'s step.
  virtual bool takes_part(State& core, std::size_t) TUTTI_REQUIRES(core.mutex) { return unused(core), true; }
  // A gradient is complete: called when it is, and for every parameter of a bucket before its launch.
  virtual void on_ready(State& core, std::size_t, Give) TUTTI_REQUIRES(core.mutex) { unused(core); }
  // Gradients of the bucket are laid out. True: this feature reduces it, until on_reduced() at the latest.
  virtual bool on_bucket(State& core, Bucket&, Give) TUTTI_REQUIRES(core.mutex) { return unused(core), false; }
  virtual void on_reduced(State& core, Bucket&) TUTTI_REQUIRES(core.mutex) { unused(core); }
  virtual void before_finish(State& core) TUTTI_REQUIRES(core.mutex) { unused(core); }
  // In finish(), all buckets are averages. Then it is known which parameters any rank has used.
  virtual void on_finish(State& core, Give) TUTTI_REQUIRES(core.mutex) { unused(core); }
  virtual void end_step(State& core, const std::vector<std::uint8_t>&, Give) TUTTI_REQUIRES(core.mutex) {
    unused(core);
  }
  virtual void on_zero_grad(State& core) TUTTI_REQUIRES(core.mutex) { unused(core); }
  virtual bool keeps_gradient(const State& core, std::size_t) const TUTTI_REQUIRES(core.mutex) {
    return unused(core), false;
  }
  // What averages are multiplied by.
  virtual double factor(const State& core) const TUTTI_REQUIRES(core.mutex) { return unused(core), 1; }
  virtual void close(State& core) TUTTI_REQUIRES(core.mutex) { unused(core); }  // the Reducer goes

 private:
  static void unused(const State&) {}
};

template <class Feature>
Feature* feature_of(const Reducer::State& core) TUTTI_REQUIRES(core.mutex) {
  for (const auto& feature : core.features)
    if (auto* const found = dynamic_cast<Feature*>(feature.get())) return found;
  return nullptr;
}

}  // namespace tutti
