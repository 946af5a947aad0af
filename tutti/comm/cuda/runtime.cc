#include "tutti/comm/cuda/runtime.h"

#include <dlfcn.h>

#include <type_traits>

#include "tutti/comm/cuda/library.h"

namespace tutti::cuda {
namespace {

constexpr const char* kFiles[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};
constexpr int kInsufficientDriver = 35;  // also if there is no driver
constexpr int kNoDevice = 100;

Result<Runtime> load() {
  void* const library = TUTTI_TRY(runtime_library());
  Runtime r{};
  const char* missing = nullptr;
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (!function) missing = name;
  };
#define TUTTI_TAKE(name) take(r.name, #name)
  TUTTI_TAKE(cudaGetDeviceCount);
  TUTTI_TAKE(cudaGetDevice);
  TUTTI_TAKE(cudaSetDevice);
  TUTTI_TAKE(cudaDeviceGetPCIBusId);
  TUTTI_TAKE(cudaMalloc);
  TUTTI_TAKE(cudaFree);
  TUTTI_TAKE(cudaHostAlloc);
  TUTTI_TAKE(cudaFreeHost);
  TUTTI_TAKE(cudaHostRegister);
  TUTTI_TAKE(cudaHostUnregister);
  TUTTI_TAKE(cudaMemcpyAsync);
  TUTTI_TAKE(cudaStreamCreateWithFlags);
  TUTTI_TAKE(cudaStreamDestroy);
  TUTTI_TAKE(cudaStreamQuery);
  TUTTI_TAKE(cudaStreamWaitEvent);
  TUTTI_TAKE(cudaEventCreateWithFlags);
  TUTTI_TAKE(cudaEventDestroy);
  TUTTI_TAKE(cudaEventRecord);
  TUTTI_TAKE(cudaEventQuery);
  TUTTI_TAKE(cudaEventElapsedTime);
  TUTTI_TAKE(cudaGetErrorString);
  TUTTI_TAKE(cudaGetLastError);
#undef TUTTI_TAKE
  if (missing)
    return Error{.code = Code::kUnsupported,
                 .detail = std::string("the CUDA runtime found has no ") + missing,
                 .hint = "it needs to be of CUDA 11 or later"};
  return r;
}

}  // namespace

Result<void*> runtime_library() {
  return find_library({.called = "the CUDA runtime", .files = kFiles, .symbol = "cudaMemcpyAsync"});
}

Result<const Runtime*> runtime() {
  static const Result<Runtime>* const loaded = new Result<Runtime>(load());  // never freed: threads may outlive main()
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

Result<const Runtime*> runtime_with(int device) {
  const Runtime* const r = TUTTI_TRY(runtime());
  int devices = 0;
  const int code = r->cudaGetDeviceCount(&devices);
  if (code == kInsufficientDriver || code == kNoDevice || (code == 0 && devices == 0)) {
    r->cudaGetLastError();
    return Error{.code = Code::kUnsupported,
                 .detail = code == kInsufficientDriver
                               ? "CUDA finds no NVIDIA driver, or one that is older than the runtime"
                               : "CUDA finds no GPU",
                 .hint = code == kInsufficientDriver
                             ? "nvidia-smi shows the driver; in a container, pass the GPUs on (--gpus all)"
                             : "nvidia-smi shows the GPUs, CUDA_VISIBLE_DEVICES may hide them"};
  }
  TUTTI_TRY(r->check(code, "count the GPUs"));
  if (device < 0 || device >= devices)
    return invalid_argument(detail::words("there is no device cuda:", device, ", ", devices,
                                          devices == 1 ? " is" : " are", " visible to this process"),
                            "CUDA_VISIBLE_DEVICES decides which are, counted from 0");
  return r;
}

}  // namespace tutti::cuda
