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

// LibTorch's autocast on the CPU and on GPUs.
struct AutocastSettings {
  struct Setting {
    bool on = false;
    int type = 0;  // an at::ScalarType
    bool operator==(const Setting&) const = default;
  };
  Setting cpu, gpu;
  bool operator==(const AutocastSettings&) const = default;
};
AutocastSettings autocast_now();  // of this thread

// While it exists, operators of this thread that gain from it (matrix products, convolutions) compute in `type`, and
// those that need the range (losses, norms) in f32. Inputs are cast, and autograd casts their gradients back. This is
// LibTorch's autocast on the CPU and on GPUs, as torch.autocast("cpu", dtype=...) and torch.autocast("cuda", dtype=...)
// together. If nested, the innermost counts. kF32 turns it off; no type leaves it unchanged. Throws Exception: another
// type; kF16 if LibTorch is older than 2.4 and cannot multiply f16 on a CPU.
class Autocast {
 public:
  explicit Autocast(std::optional<DType> type);
  explicit Autocast(const AutocastSettings& settings);  // as it was at another time
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  void begin(const AutocastSettings& settings);

  bool active_ = false;
  AutocastSettings before_;
};

}  // namespace tutti
