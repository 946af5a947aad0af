#pragma once
// What the parts of Reducer share. For reducer*.cc alone.
#include <ATen/core/Tensor.h>

#include <optional>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/comm/work.h"
#include "tutti/parallel/data_parallel/buckets.h"
#include "tutti/parallel/data_parallel/gradient_arrivals.h"
#include "tutti/parallel/data_parallel/gradient_taker.h"
#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/data_parallel/option_pairs.h"
#include "tutti/parallel/data_parallel/reducer/logical_ranks.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/parallel/gradients/finite.h"
#include "tutti/parallel/gradients/peer_averages.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {

class PendingSparse;  // tensor/sparse_collectives.h

enum class Travel {
  kBucket,   // with others, in a bucket
  kDelayed,  // the same, but only in average_delayed()
  kSparse,   // alone, by rows
};

struct Parameter {
  std::string name;
  at::Tensor tensor;
  Travel travel = Travel::kBucket;
  compat::AccumulatorPtr accumulator{};
  std::size_t bytes = 0;
  std::size_t bucket = 0;
  at::Tensor window{};   // its place in the bucket's flat range; undefined: reduced where it lies
  at::Tensor reduced{};  // while in flight: what is reduced where it lies, or the average of a sparse one
  bool packed = false;   // its gradient of this step is in its window
  bool touched = false;  // it got a gradient since it was last averaged, be it inside no_sync()
};

// Of a bucket: a large gradient, or all that are packed.
struct GradientRange {
  TensorBytes bytes;
  std::optional<std::size_t> parameter;  // none: packed
};

struct Bucket {
  std::vector<std::size_t> parameters;
  GradientBucket contents;  // buffer: the packed ones; undefined if there are none
  std::size_t bytes = 0;
  std::size_t waiting = 0;  // parameters that are not ready
  std::vector<Work> works;
  std::vector<GradientRange> for_peers{};  // to be averaged by all ranks in each other's memory
  std::vector<TensorBytes> climbing{};     // of logical ranks: sums that wait for the next level
  CommHook::Finish finish_hook{};
};

// All elements of a tensor without holes, as they lie in memory.
at::Tensor in_order_of_memory(const at::Tensor& dense);
// Where it lies, to the average.
Request all_reduce_of(const TensorBytes& bytes);

struct Reducer::State : std::enable_shared_from_this<Reducer::State> {
  State(std::shared_ptr<torch::nn::Module> model, const Group& world, const DataParallelOptions& given);

  // reducer_buckets.cc: what the model has, and where its gradients lie.
  void collect_parameters() TUTTI_REQUIRES(mutex);
  void install_hooks() TUTTI_REQUIRES(mutex);
  void make_buckets(const std::vector<std::size_t>& order) TUTTI_REQUIRES(mutex);
  std::vector<Bucket> buckets_of(const std::vector<std::size_t>& order) TUTTI_REQUIRES(mutex);
  void pack(Bucket& bucket, const PlannedBucket& plan) TUTTI_REQUIRES(mutex);
  std::vector<std::size_t> numbers_of(Travel travel) const TUTTI_REQUIRES(mutex);

  // reducer_reduction.cc: from gradients to averages.
  enum class Give { kGradients, kZeros };  // kZeros: this rank has run out of data
  void launch(Bucket& bucket, Give give) TUTTI_REQUIRES(mutex);
  at::Tensor laid_out_like_the_parameter(const Parameter& parameter, Give give) const TUTTI_REQUIRES(mutex);
  void fill_window(std::size_t parameter, Give give) TUTTI_REQUIRES(mutex);
  void give_away(const Bucket& bucket) TUTTI_REQUIRES(mutex);
  void start(Bucket& bucket, const GradientRange& range) TUTTI_REQUIRES(mutex);
  void wait_for(std::vector<Bucket>& buckets) TUTTI_REQUIRES(mutex);
  void finish_hook(Bucket& bucket) TUTTI_REQUIRES(mutex);
  void average_sparse_ones(Give give) TUTTI_REQUIRES(mutex);
  at::Tensor average_of(const Parameter& parameter, const PendingSparse& sum) const TUTTI_REQUIRES(mutex);
  void write_back(std::size_t parameter) TUTTI_REQUIRES(mutex);
  void write_back_all(const std::vector<std::size_t>& numbers, const std::vector<std::uint8_t>& used)
      TUTTI_REQUIRES(mutex);
  double average_factor() const TUTTI_REQUIRES(mutex);
  std::vector<std::uint8_t> used_anywhere(bool exchange, Give give) const TUTTI_REQUIRES(mutex);

  // reducer_finite.cc: NaN and infinity, and averages that are looked at while they are made.
  bool looks_in_reduction() const TUTTI_REQUIRES(mutex) {
    return options.finite_check == FiniteCheck::kInReduction && !taker;
  }
  bool looks_before() const;
  bool throws_on_non_finite() const { return options.finite_check != FiniteCheck::kReport; }
  void look_at_own(std::size_t parameter, const at::Tensor& dense) TUTTI_REQUIRES(mutex);
  void look_at_averages(const Bucket& bucket) TUTTI_REQUIRES(mutex);
  void look_at_hooks_averages(const Bucket& bucket) TUTTI_REQUIRES(mutex);
  void average_with_peers(std::vector<Bucket>& buckets) TUTTI_REQUIRES(mutex);
  void average_out_of_reach(const Bucket& bucket, const GradientRange& range) TUTTI_REQUIRES(mutex);
  void look_into(const Bucket& bucket, const GradientRange& range, const NonFiniteTile& tile) TUTTI_REQUIRES(mutex);
  // Every rank calls; whether one was found. A meeting, if it looks at all.
  bool decide_on_non_finite(Give give) TUTTI_REQUIRES(mutex);
  int rank_of_kept_gradient(std::size_t parameter, Give give) const TUTTI_REQUIRES(mutex);

  // reducer_logical.cc: several ranks of one process.
  bool reduces_in_backward() const TUTTI_REQUIRES(mutex) { return sync && (!logical || logical->is_last_turn()); }
  void add_logical_ranks(std::size_t parameter) TUTTI_REQUIRES(mutex);
  void climb_from(Bucket& bucket, const TensorBytes& bytes) TUTTI_REQUIRES(mutex);
  void climb(const TensorBytes& bytes, std::size_t level) TUTTI_REQUIRES(mutex);
  std::vector<NamedTensor> shared_buffers() const TUTTI_REQUIRES(mutex);
  void require_logical_turn(const char* call, bool last) const TUTTI_REQUIRES(mutex);

  // reducer_checks.cc: what cannot be right, in words.
  Error mistake(std::string detail, std::string hint) const;
  [[noreturn]] void end_group(std::string detail, std::string hint) const;  // on every rank, with these words
  void require_sensible_options() const TUTTI_REQUIRES(mutex);
  // By the table of option_pairs.cc; `added`: what is about to be used.
  void require_no_excluded_pair(bool DataParallelUse::*added = nullptr) const TUTTI_REQUIRES(mutex);
  void require_something_to_train() const TUTTI_REQUIRES(mutex);
  std::vector<NamedValue> named_options() const;
  void require_all_ready() const TUTTI_REQUIRES(mutex);
  void require_what_a_taker_can_have() const TUTTI_REQUIRES(mutex);
  [[noreturn]] void tell_too_often(std::size_t parameter) const TUTTI_REQUIRES(mutex);
  // Every rank calls: a meeting.
  [[noreturn]] void tell_differing_graphs(std::size_t parameter, Give give) const TUTTI_REQUIRES(mutex);
  [[noreturn]] void tell_non_finite() const TUTTI_REQUIRES(mutex);
  void require_layout(const Parameter& parameter, const at::Tensor& gradient) const;

  // reducer.cc
  void on_ready(std::size_t index) TUTTI_EXCLUDES(mutex);
  void finish_step(Give give) TUTTI_REQUIRES(mutex);
  void learn_static_graph(Give give) TUTTI_REQUIRES(mutex);
  void adopt_observed_order() TUTTI_REQUIRES(mutex);
  void begin_step() TUTTI_REQUIRES(mutex);
  JoinTurn turn(bool has_data) TUTTI_REQUIRES(mutex);
  std::vector<NamedTensor> not_ignored(std::vector<NamedTensor> tensors) const;

  std::shared_ptr<torch::nn::Module> module;
  Group group;
  DataParallelOptions options;
  std::optional<HeapTensors> heap;
  bool overlap = false;
  bool peers_average = false;  // in finish(), each its part of what lies in reach, for all: alike on every rank
  const Unwinding unwinding{};

  mutable Mutex mutex;  // hooks may run on autograd's threads
  std::vector<Parameter> parameters TUTTI_GUARDED_BY(mutex);
  std::vector<at::Tensor> ignored TUTTI_GUARDED_BY(mutex);  // parameters that zero_grad() alone knows
  std::vector<Bucket> buckets TUTTI_GUARDED_BY(mutex), delayed_buckets TUTTI_GUARDED_BY(mutex);
  std::optional<GradientArrivals> arrivals TUTTI_GUARDED_BY(mutex);
  std::size_t next_bucket TUTTI_GUARDED_BY(mutex) = 0;  // the first that was not launched
  bool order_is_final TUTTI_GUARDED_BY(mutex) = false;
  bool sync TUTTI_GUARDED_BY(mutex) = true;
  bool delayed_were_averaged TUTTI_GUARDED_BY(mutex) = false;  // and nothing came since
  GradientTaker* taker TUTTI_GUARDED_BY(mutex) = nullptr;
  double gradient_scale TUTTI_GUARDED_BY(mutex) = 1;
  std::function<void()> after_shadow_step TUTTI_GUARDED_BY(mutex);  // called without the lock
  std::optional<LogicalRanks> logical TUTTI_GUARDED_BY(mutex);
  NonFiniteWatch watch TUTTI_GUARDED_BY(mutex);
  std::optional<NonFiniteGradient> non_finite TUTTI_GUARDED_BY(mutex);
  DataParallelStats totals TUTTI_GUARDED_BY(mutex);

  struct Joining {
    bool divide_by_active = false, throw_on_early_end = false;
    JoinTurn now;
  };
  std::optional<Joining> joining TUTTI_GUARDED_BY(mutex);
};

}  // namespace tutti
