#include "tutti/doctor/nvml.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <type_traits>

#include "tutti/base/env.h"
#include "tutti/base/text.h"

namespace tutti::doctor {
namespace {

constexpr const char* kFile = "libnvidia-ml.so.1";

void* open_library() {
  if (const auto given = env("TUTTI_CUDA_PATH"))
    for (const std::string& folder : split(*given, ':')) {
      const std::string path = folder + "/" + kFile;
      if (std::error_code none; !std::filesystem::exists(path, none)) continue;
      if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  return ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Result<Nvml> load_nvml() {
  void* const library = open_library();
  if (!library) {
    const char* const why = ::dlerror();
    return Error{.code = Code::kNotFound, .detail = why ? why : std::string(kFile) + " cannot be loaded"};
  }
  Nvml nvml{};
  const char* missing = nullptr;
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (!function) missing = name;
  };
#define TUTTI_TAKE(name) take(nvml.name, #name)
  TUTTI_TAKE(nvmlInit_v2);
  TUTTI_TAKE(nvmlShutdown);
  TUTTI_TAKE(nvmlErrorString);
  TUTTI_TAKE(nvmlDeviceGetCount_v2);
  TUTTI_TAKE(nvmlDeviceGetHandleByIndex_v2);
  TUTTI_TAKE(nvmlDeviceGetName);
  TUTTI_TAKE(nvmlDeviceGetUUID);
  TUTTI_TAKE(nvmlDeviceGetMemoryInfo);
  TUTTI_TAKE(nvmlDeviceGetPciInfo_v3);
  TUTTI_TAKE(nvmlDeviceGetComputeMode);
  TUTTI_TAKE(nvmlDeviceGetP2PStatus);
#undef TUTTI_TAKE
  if (missing)
    return Error{.code = Code::kUnsupported, .detail = std::string(kFile) + " has no " + missing + ": it is too old"};
  return nvml;
}

}  // namespace tutti::doctor
