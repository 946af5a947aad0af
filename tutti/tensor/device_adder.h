#pragma once
// LibTorch's kernels as the adder of calls on GPU memory (comm/cuda/adder.h).

namespace tutti {

// Registers it for this process, if no adder is registered. place_of() calls it for tensors on GPUs, so a process that
// passes tensors need not. Any thread; cheap.
void use_torch_adder();

}  // namespace tutti
