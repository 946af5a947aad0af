#pragma once
// What the double of the CUDA runtime (cudart.cc) offers beyond the runtime's own functions, to the double of NCCL and
// to tests. (The double of NCCL uses nothing else of it: where LibTorch has brought the real runtime, that one's names
// come first.)

extern "C" {
// Where the bytes of a device pointer really are; a host pointer is given back as it came. Only work that stands on a
// stream, as a kernel would, may look there.
void* fake_cuda_bytes(const void* pointer);
void fake_cuda_enqueue(void* stream, void (*act)(void*), void* data);
int fake_cuda_current_device();
}
