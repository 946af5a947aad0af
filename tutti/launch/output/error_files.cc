#include "tutti/launch/output/error_files.h"

#include <unistd.h>

#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/rendezvous/secret.h"

namespace tutti {

std::string error_files_prefix() {
  const auto folder = runtime_directory(current_environment());
  return folder.ok() ? *folder + "/errors." + std::to_string(::getpid()) + "." : "";
}

void remove_error_files(const std::string& prefix) {
  namespace fs = std::filesystem;
  if (prefix.empty()) return;
  std::error_code error;
  for (auto at = fs::directory_iterator(fs::path(prefix).parent_path(), error);
       !error && at != fs::directory_iterator(); at.increment(error))
    if (at->path().string().starts_with(prefix)) (void)::unlink(at->path().c_str());  // a sweep may have been quicker
}

}  // namespace tutti
