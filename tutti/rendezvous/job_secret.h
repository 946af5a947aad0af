#pragma once
// The secret of a job comes from the first of these that is there:
//   TUTTI_SECRET_FD    a descriptor with exactly 32 bytes that tutti run left open for its workers
//   TUTTI_SECRET_FILE  a file of mode 0600 that belongs to this user
//   TUTTI_SECRET       a text; at least 128 random bits, for it can be guessed at without limit
//   TUTTI_INSECURE=1   none: any process that can connect can join
//   on one host        a file of mode 0600 in the user's runtime folder, named after the job, made by the first rank
//                      that starts
// Ranks on several hosts without any of these are refused: there is no constant to fall back to.
#include <optional>
#include <string>

#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/transport/secret.h"

namespace tutti::rendezvous {

struct JobSecret {
  transport::Secret secret;
  std::string file = {};  // the file in the runtime folder, for rank 0 to remove once all ranks have it; else empty
  Fd held = {};           // a shared lock on it: while anybody has one, the file is no leftover

  // This process does not join after all: removes the file unless others hold it.
  void give_up();
};

// `one_host`: all ranks are known to be on this host. `why_not` completes the refusal: why that is not known.
Result<JobSecret> job_secret(const Environment& environment, const std::string& job, bool one_host,
                             const std::string& why_not);

// The secret in a file that the user named; whatever is wrong with it is kUsage.
Result<transport::Secret> secret_in(const std::string& file);

// The secret that the environment gives; none if it gives none.
Result<std::optional<transport::Secret>> given_secret(const Environment& environment);

// A folder that belongs to this user and that no other user can enter, made if need be: tutti/ below XDG_RUNTIME_DIR or
// /run/user/UID, else tutti-UID below TMPDIR or /tmp. kRefused if it belongs to another user or is open to others.
Result<std::string> runtime_directory(const Environment& environment);

// The same, but none is made: ENOENT where there is none yet.
Result<std::string> find_runtime_directory(const Environment& environment);

// Removes what killed jobs left in the runtime folder: secrets that no process holds any more (job_secret() holds them
// by a shared lock on the file, which ends with the process however that ends) and sockets at which nothing listens.
// Only files of this user with mode 0600; sockets and half-made files only when they are a minute old, for a job that
// is just starting has bound but does not listen yet.
void sweep_runtime_directory(const std::string& folder);

}  // namespace tutti::rendezvous
