#pragma once
// A message of a rank to the people who watch the job, while it runs.
#include <string>

#include "tutti/comm/group.h"

namespace tutti {

// `tutti status`, `tutti top` and failure reports show the alarm until the rank sets another; an empty text clears it.
// One line; text beyond 1023 bytes is cut off. The alarm belongs to the rank, whatever the group. Does nothing without
// a group or without an agent. Any thread.
void set_alarm(const Group& group, const std::string& text);

}  // namespace tutti
