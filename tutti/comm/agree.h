#pragma once
// Whether all ranks are well: for steps that each rank does by itself (opening a file, checking what it was given) and
// that count only if all succeed.
#include "tutti/base/call_site.h"
#include "tutti/comm/group.h"

namespace tutti {

// Ok where every rank gives ok. Else the same error on every rank: that of the lowest rank that has one, which it
// names. Collective; an error of the group itself comes back as well. Without a group: `mine`.
Status agree(const Group& group, const Status& mine, CallSite at = CallSite::here());

}  // namespace tutti
