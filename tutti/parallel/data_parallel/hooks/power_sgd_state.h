#pragma once
// What PowerSgd keeps from step to step; power_sgd.cc works with it, power_sgd_checkpoint.cc saves it and brings it
// back.
#include <ATen/core/Generator.h>

#include <map>
#include <string>
#include <vector>

#include "tutti/base/random.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"

namespace tutti {

struct PowerSgd::State {
  struct Compressed {
    std::string name;    // of the parameter
    at::Tensor m, p, q;  // m: a window into the bucket; p, q: into its ranges
  };
  // Of a bucket.
  struct Memory {
    at::Tensor buffer;  // of the bucket for which it was made
    std::vector<Compressed> matrices;
    std::vector<at::Tensor> others;  // windows into the bucket
    at::Tensor all_p, all_q, packed, error, given;
    bool has_q = false, has_new_error = false;  // in `given`, of the last step
    double scale = 1, given_scale = 1;          // of the gradients that left `error`, and of the last ones

    // [elements of the matrix], a window into `error`; undefined: there is no error feedback.
    at::Tensor error_of(const Compressed& one) const;
  };
  // Of a parameter that no bucket has laid out since it was loaded, or since buckets were built anew. Undefined: none.
  struct Kept {
    at::Tensor q, error;
  };

  static constexpr std::int64_t kMostSeed = 1'000'000'000;

  PowerSgdOptions options;
  NumpyRandom random;      // of the seeds of Qs
  Progress progress;       // its scales are those of `kept`
  bool has_begun = false;  // a step before this one has compressed
  Elements elements;
  std::vector<Memory> buckets;
  std::map<std::string, Kept> kept;  // by the name of the parameter

  explicit State(const PowerSgdOptions& given) : options(given), random(given.seed) {}
  std::int64_t rank_of(const at::Tensor& matrix) const;
  Memory& memory_of(const Group& group, const GradientBucket& bucket);
  void lay_out(Memory& memory, const Group& group, const GradientBucket& bucket);
  void keep(const Memory& memory);
  void fill_from_kept(Memory& memory);
  at::Generator next_generator();
  void draw_q(Memory& memory);
  void prepare_q(Memory& memory);
  void gather_others(Memory& memory);
  void spread_others(Memory& memory);
  void find_error(Memory& memory);
  void take_over_error(Memory& memory, bool was_skipped);
};

}  // namespace tutti
