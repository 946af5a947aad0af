#pragma once
// What the ends of a node's ranks come to, where no failure ended the job. Pure functions.
#include <span>
#include <string>

#include "tutti/launch/reports/report.h"

namespace tutti {

// The exit code that these ends are: 0 where all ended well, 75 where some of those had saved. After a signal of the
// user (`user_signal`, else 0) a rank may end with a code of its own; one that a signal ended counts as the user's.
int code_of_ends(std::span<const WorkerEnd> ends, int user_signal);
// Who left with code 75, and that the job can go on. `told`: somebody had told the job to stop here.
std::string saved_words(std::span<const WorkerEnd> ends, bool told);

}  // namespace tutti
