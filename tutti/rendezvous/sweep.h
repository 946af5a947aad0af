#pragma once
// What killed jobs left in the user's runtime folder.
#include <string>

namespace tutti {

// Removes secrets that no process holds any more (job_secret() holds them by a shared lock on the file, which ends with
// the process however that ends) and sockets at which nobody listens. Only files of this user with mode 0600; sockets
// and half-made files only when they are a minute old, for a job that is just starting has bound but does not listen
// yet.
void sweep_runtime_directory(const std::string& folder);

}  // namespace tutti
