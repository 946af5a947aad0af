#pragma once
// Whether a folder is one and the same for all ranks, and each may write there: better asked before an hour of training
// than at the first save.
#include <string>

#include "tutti/comm/group.h"

namespace tutti {

// Makes the folder where there is none. Collective; equal on all ranks: ok, or what is wrong with the first rank that
// cannot use it. kMismatch: a rank sees another folder of that name than rank 0 does (the disk of its own node).
// Leaves nothing behind.
Status check_shared_folder(const Group& group, const std::string& folder);

}  // namespace tutti
