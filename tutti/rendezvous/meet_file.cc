// Meeting in a file comes with the file store.
#include "tutti/rendezvous/meet.h"

namespace tutti {

Result<MeetingPoint> meet_in_file(const Identity& identity, Credentials&, bool, Deadline) {
  return Error{.code = Code::kUnsupported, .detail = "this build has no file store for " + identity.path, .hint = "use tcp://host:port"};
}

}  // namespace tutti
