#pragma once
// What the double of the CUDA runtime (cudart.cc) offers beyond the runtime's own functions, to the double of NCCL and
// to tests. (The double of NCCL uses nothing else of it: where LibTorch has brought the real runtime, that one's names
// come first.)

#include <cstddef>
#include <cstdint>

extern "C" {
// Where the bytes of a device pointer really are; a host pointer is given back as it came. Only work that stands on a
// stream, as a kernel would, may look there.
void* fake_cuda_bytes(const void* pointer);
// Runs `act` when its turn on the stream comes. The late one waits until somebody waits for it, as kernels of LibTorch
// do here.
void fake_cuda_enqueue(void* stream, void (*act)(void*), void* data);
void fake_cuda_enqueue_late(void* stream, void (*act)(void*), void* data);
// As the late one, for an act that waits for what is on no stream: other streams that are to wait for it do not hold
// the host meanwhile.
void fake_cuda_enqueue_waiting(void* stream, void (*act)(void*), void* data);
void fake_cuda_await(void* stream);  // does not count as a wait of the host
void fake_cuda_lose(int device);     // from now on every use of it fails
int fake_cuda_is_lost(int device);
int fake_cuda_current_device();
int fake_cuda_device_of(const void* pointer);  // -1: of none
int fake_cuda_is_pinned(const void* pointer);
int fake_cuda_open_handles();  // of memory of other processes
// Calls so far that made the host wait for this device: synchronisations and blocking copies.
std::uint64_t fake_cuda_host_waits(int device);
// Copies of LibTorch's double so far between this device and memory of the host that is not pinned.
std::uint64_t fake_cuda_unpinned_copies(int device);
void fake_cuda_count_unpinned_copy(int device);
// Bytes that asynchronous copies have written to this device so far: those of Tutti's calls, as LibTorch's double
// copies by kernels.
std::uint64_t fake_cuda_copied_to(int device);
// Waits until they are at least `bytes`, at most so long. Returns whether they are.
int fake_cuda_await_copied_to(int device, std::uint64_t bytes, int milliseconds);
}
