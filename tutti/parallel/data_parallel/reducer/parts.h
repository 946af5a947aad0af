#pragma once
// A parameter and a bucket, as the files of this folder see them.
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/work.h"
#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {

enum class Route {
  kBucket,   // with others, in a bucket
  kDelayed,  // the same, but only in average_delayed()
  kSparse,   // alone, by rows
};

// What this rank gives: zeros if it has run out of data (join_uneven()).
enum class Give { kGradients, kZeros };

struct Parameter {
  std::string name;
  at::Tensor tensor;
  Route route = Route::kBucket;
  compat::AccumulatorPtr accumulator{};
  std::size_t bytes = 0;
  std::size_t bucket = 0;
  at::Tensor window{};   // its place in the bucket's flat range; undefined: reduced in place
  at::Tensor reduced{};  // while in flight: what is reduced in place, or the average of a sparse one
  bool is_view = false;  // `.grad` is the window
  bool packed = false;   // its gradient of this step is in its window
  bool touched = false;  // it got a gradient since it was last averaged, be it inside no_sync()
  const at::Tensor& given() const { return window.defined() ? window : reduced; }
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
  bool hooked = false;                     // by DataParallelOptions::hook
  CommHook::Finish finish_hook{};
};

// In place, to the average.
Request all_reduce_of(const TensorBytes& bytes);

}  // namespace tutti
