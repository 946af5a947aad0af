#pragma once
// Smaller numbers for inference: MLPs with weights of 8 or 16 bits, and rows of tables with 4 or 8.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tutti/models/dlrm/mlp.h"

namespace tutti::dlrm {

// An MLP whose weights are kept in fewer bits. 16: halves, computed in the type of the input. 8: each row of a weight
// has a scale of its own (its largest entry is 127), each sample's input is rounded to 256 steps between its least and
// its largest entry, sums are of whole numbers. By sample, so the result does not depend on how a batch is divided. On
// the device of the MLP, whose sums of 8 bits are those of the CPU.
class QuantisedMlp {
 public:
  QuantisedMlp(const Mlp& mlp, int bits);
  at::Tensor infer(const at::Tensor& input) const;  // as Mlp::forward()
  std::size_t weight_bytes() const;

 private:
  struct Layer {
    at::Tensor weight;        // half or int8 [out, in]
    at::Tensor bias;          // of the MLP's type
    at::Tensor scales, sums;  // 8 bits: of each row, its scale and the sum of its entries
  };
  at::Tensor multiply(const Layer& layer, const at::Tensor& input) const;

  std::vector<Layer> layers_;
  bool sigmoid_;
  int bits_;
};

// Rounds each row to 2^bits steps between its least and its largest entry, in place: the values that a table of so few
// bits gives back. [rows, dim]
void round_rows(const at::Tensor& rows, int bits);

}  // namespace tutti::dlrm
