#pragma once
// Computing in 16 bits while the parameters stay in 32.
//
//   {
//     const tutti::Autocast in_bf16(tutti::DType::kBF16);
//     loss = torch::nll_loss(ddp.forward(x), y);
//   }
//   loss.backward();                        // gradients of the f32 parameters are f32
#include <optional>

#include "tutti/base/dtype.h"
#include "tutti/base/error.h"

namespace tutti {

// kUnsupported, with LibTorch's version: it cannot multiply numbers of this type on a CPU (f16, where it is older than
// 2.4).
Status check_computes_in(DType type);

// While it exists, operators of this thread that gain from it (matrix products, convolutions) compute in `type`, and
// those that need the range (losses, norms) in f32. Inputs are cast, and autograd casts their gradients back. This is
// LibTorch's autocast on the CPU, as torch.autocast("cpu", dtype=...). If nested, the innermost counts. kF32 turns it
// off; no type leaves it unchanged. Throws Exception: another type; kF16 if LibTorch is older than 2.4 and cannot
// multiply f16 on a CPU.
class Autocast {
 public:
  explicit Autocast(std::optional<DType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_ = false, was_enabled_ = false;
  int previous_type_ = 0;
};

}  // namespace tutti
