#pragma once
// What TUTTI_LOG says (log.h), for those who begin something: a word that is no level and no topic.
#include "tutti/base/error.h"

namespace tutti::log {

// kUsage: it holds such a word. For who can refuse to begin.
Status check_setting();
// Says so now, where else it would come with the first line, or never. For who goes on; a process says it once.
void tell_of_setting();

}  // namespace tutti::log
