#pragma once
// Functions of the CUDA runtime as the double (cudart.cc) has them, for LibTorch's double (torch_device.cc) and its
// tests. Not together with the real header.

#include <cstddef>

extern "C" {
int cudaGetDeviceCount(int* count);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
int cudaMalloc(void** at, std::size_t bytes);
int cudaHostAlloc(void** at, std::size_t bytes, unsigned flags);
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int direction, void* stream);
int cudaStreamCreateWithFlags(void** stream, unsigned flags);
int cudaStreamQuery(void* stream);
int cudaStreamSynchronize(void* stream);
int cudaDeviceSynchronize();
int cudaStreamWaitEvent(void* stream, void* event, unsigned flags);
int cudaEventCreateWithFlags(void** event, unsigned flags);
int cudaEventDestroy(void* event);
int cudaEventRecord(void* event, void* stream);
int cudaEventQuery(void* event);
int cudaEventSynchronize(void* event);
const char* cudaGetErrorString(int error);
}
