#pragma once
// A mistake that all ranks of a job make alike, found before they meet: one of them tells it.
#include <string>

#include "tutti/base/error.h"

namespace tutti::cli {

// Rank 0, as the environment numbers it, tells the error as tell() does; a process that is told no number is rank 0.
// The others leave the sentence for their launcher's report, in the file of TORCHELASTIC_ERROR_FILE, or, where no
// launcher reads one, say in a line that they leave.
void tell_once(const std::string& command, const Error& error);

}  // namespace tutti::cli
