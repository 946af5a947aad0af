#pragma once
// barrier and gather_all over etcd. Private to store/etcd/.
#include "tutti/store/etcd/session.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"

namespace tutti::etcd {

// Carries out `request`, whose op is kBarrier or kGatherAll: enters, and waits for the others until the deadline. About
// every `report_every` seconds `waiting` (may be empty) hears who is missing.
Result<Reply> meet(Session& session, const StoreRequest& request, Deadline deadline, const Store::Waiting& waiting,
                   double report_every);

}  // namespace tutti::etcd
