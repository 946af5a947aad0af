#pragma once
// Where a job's secret comes from, in this order:
//   TUTTI_SECRET_FD    a descriptor with exactly 32 bytes that tutti run left open for its workers
//   TUTTI_SECRET_FILE  a file of mode 0600 that belongs to this user
//   TUTTI_SECRET       a text; at least 128 random bits, for it can be guessed at without limit
//   TUTTI_INSECURE=1   none: whoever can connect can join
//   on one host        a file of mode 0600 in the user's runtime folder, named after the job, made by whichever rank
//                      comes first
// Ranks on several hosts without any of these are refused: there is no constant to fall back to.
#include <string>

#include "tutti/base/fd.h"
#include "tutti/rendezvous/schedulers.h"
#include "tutti/transport/handshake.h"

namespace tutti {

struct JobSecret {
  Secret secret;
  std::string file = {};  // the file in the runtime folder, for rank 0 to remove once all ranks have it; else empty
  Fd held = {};           // a shared lock on it: while anybody has one, the file is no leftover

  // This process does not join after all: removes the file unless others hold it.
  void give_up();
};

// `one_host`: all ranks are known to be on this host. `why_not` completes the refusal: why that is not known.
Result<JobSecret> job_secret(const Environment& environment, const std::string& job, bool one_host,
                             const std::string& why_not);

// The secret in a file that the user named; whatever is wrong with it is kUsage.
Result<Secret> secret_in(const std::string& file);

// The secret that the environment gives; none if it gives none.
Result<std::optional<Secret>> given_secret(const Environment& environment);

// The secret for TUTTI_SECRET_FD, closed on exec: memory that nobody can change, in no file and on no command line.
Result<Fd> secret_descriptor(const Secret& secret);

// A folder that belongs to this user and that nobody else can enter, made if need be: tutti/ below XDG_RUNTIME_DIR or
// /run/user/UID, else tutti-UID below TMPDIR or /tmp. kRefused if what is there belongs to somebody else or is open to
// others.
Result<std::string> runtime_directory(const Environment& environment);

// The same, but none is made: ENOENT where there is none yet.
Result<std::string> find_runtime_directory(const Environment& environment);

// 64 hexadecimal digits to make a secret of.
std::string random_secret_text();

}  // namespace tutti
