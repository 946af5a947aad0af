#pragma once
// Finds CUDA libraries that the program is not linked with: the runtime, NCCL.
#include <span>
#include <string>

#include "tutti/base/error.h"

namespace tutti::cuda {

struct LibraryQuery {
  std::string called;                    // name in messages: "the CUDA runtime"
  std::span<const char* const> files{};  // file names in search order: "libcudart.so.13", "libcudart.so.12"
  const char* symbol = nullptr;          // a symbol that identifies the library: "cudaMemcpyAsync"
};

// Returns a handle for dlsym(). If TUTTI_CUDA_PATH is set, only its folders (separated by colons) are searched.
// Otherwise a library that the process has already loaded comes first. LibTorch brings its own runtime and NCCL, and
// two copies in one process conflict. Last, the loader searches by name. Fails with kNotFound, which lists everything
// that was tried. The library stays loaded.
Result<void*> find_library(const LibraryQuery& query);

}  // namespace tutti::cuda
