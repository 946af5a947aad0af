#pragma once
// What people should know of a rank while its job runs on.
#include <string>

#include "tutti/comm/group.h"

namespace tutti {

// Shown by `tutti status` and `tutti top`, and in the report of a failure, until the rank sets another; empty: nothing
// any more. One line; what is beyond 1023 bytes is cut off. Of any group, the alarm is the rank's. Does nothing without
// a group, or where no agent looks. Any thread.
void set_alarm(const Group& group, const std::string& text);

}  // namespace tutti
