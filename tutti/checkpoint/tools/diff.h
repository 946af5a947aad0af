#pragma once
// What is different between two sources of tensors.
#include <string>
#include <vector>

#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/tools/pieces.h"

namespace tutti {

struct TensorDifference {
  TensorKey key;
  std::uint64_t differing = 0, elements = 0;
  // Where the difference is largest. A NaN on one side alone is larger than any number; NaN on both is none.
  double largest = 0;
  std::string at;                // "[3, 17]"
  double first = 0, second = 0;  // the values there
  bool is_numeric = true;        // else only `differing` is known
};

struct DiffReport {
  std::vector<std::string> only_first, only_second;  // names of tensors
  std::vector<std::string> misshapen;                // "emb.0 is F32[10, 4] and F32[12, 4]"
  std::vector<TensorDifference> different;
  std::vector<std::string> values;  // "values.lr: 0.1 and 0.05"
  std::size_t equal = 0;            // tensors

  bool same() const {
    return only_first.empty() && only_second.empty() && misshapen.empty() && different.empty() && values.empty();
  }
};

// Elements whose difference is at most `tolerance` are equal.
Result<DiffReport> diff_tensors(const TensorSource& first, const TensorSource& second, double tolerance,
                                const BytesDone& tell = {});

}  // namespace tutti
