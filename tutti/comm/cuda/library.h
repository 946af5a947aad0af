#pragma once
// Finding a library of CUDA's that nobody linked: the runtime, NCCL.
#include <span>
#include <string>

#include "tutti/base/error.h"

namespace tutti::cuda {

struct LibraryQuery {
  std::string called;                    // for people: "the CUDA runtime"
  std::span<const char* const> files{};  // in this order: "libcudart.so.13", "libcudart.so.12"
  const char* symbol = nullptr;          // that tells it: "cudaMemcpyAsync"
};

// A handle for dlsym(). The folders of TUTTI_CUDA_PATH (separated by colons) where that is set, and nothing else; else
// what this process has loaded already, since LibTorch carries a runtime and an NCCL of its own and two of them in one
// process do not agree; else whatever the loader finds by name. kNotFound tells all that was tried. The library stays
// loaded.
Result<void*> find_library(const LibraryQuery& query);

}  // namespace tutti::cuda
