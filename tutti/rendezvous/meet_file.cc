// Rank 0 owns the file and removes it at the end; the others wait until it has made it. The file has mode 0600, so
// whoever reads it is this user: rank 0 puts a secret for the job's own connections into it, unless one was given.
#include "tutti/rendezvous/job_secret.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/store/file_store.h"

namespace tutti {
namespace {

constexpr const char* kSecretKey = "join/secret";

}  // namespace

Result<MeetingPoint> meet_in_file(const Identity& identity, Credentials& credentials, bool secret_given,
                                  Deadline deadline) {
  const bool owner = identity.rank == 0;
  MeetingPoint point;
  auto store =
      owner ? FileStore::create(identity.path, identity.job) : FileStore::join(identity.path, identity.job, deadline);
  if (!store.ok()) {
    Error error = store.error();
    error.detail += " (the place is from " + identity.meeting_source + ")";
    return error;
  }
  point.store = *std::move(store);
  if (!secret_given) {
    if (owner) TUTTI_TRY(point.store->set(kSecretKey, random_secret_text()));
    credentials.secret = Secret::from_text(TUTTI_TRY(point.store->get(kSecretKey, deadline)));
  }
  return point;
}

}  // namespace tutti
