#pragma once
// What the double of the CUDA runtime (cudart.cc) offers beyond the runtime's own functions, to the double of NCCL and
// to tests.

extern "C" {
// Where the bytes of a device pointer really are; a host pointer is given back as it came. Only work that stands on a
// stream, as a kernel would, may look there.
void* fake_cuda_bytes(const void* pointer);
}
