#include "tutti/comm/cuda/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/text.h"

namespace tutti::cuda {
namespace {

Error not_found(const LibraryQuery& query, const std::string& where, const std::string& last) {
  return Error{
      .code = Code::kNotFound,
      .detail = query.called + " cannot be loaded: tried " + where + (last.empty() ? "" : "; the last error: " + last),
      .hint = "install it, or name its folder: TUTTI_CUDA_PATH=/usr/local/cuda/lib64"};
}

std::string last_error() {
  const char* const why = ::dlerror();
  return why ? why : "";
}

}  // namespace

Result<void*> find_library(const LibraryQuery& query) {
  const std::vector<std::string> names(query.files.begin(), query.files.end());
  if (const auto given = env("TUTTI_CUDA_PATH")) {
    std::string last;
    for (const std::string& folder : split(*given, ':'))
      for (const std::string& name : names) {
        const std::string path = folder + "/" + name;
        if (std::error_code failed; !std::filesystem::exists(path, failed)) continue;
        if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
        last = last_error();
      }
    return not_found(query, join(names, ", ") + " in " + join(split(*given, ':'), " and ") + " (TUTTI_CUDA_PATH)",
                     last);
  }
  if (::dlsym(RTLD_DEFAULT, query.symbol)) return RTLD_DEFAULT;
  for (const std::string& name : names)
    if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return library;
  std::string last;
  for (const std::string& name : names) {
    if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    last = last_error();
  }
  return not_found(query, "what this process has loaded, and " + join(names, ", "), last);
}

}  // namespace tutti::cuda
