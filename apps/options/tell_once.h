#pragma once
// A mistake that all ranks of a job make alike, found before they meet: one of them tells it.
#include <string>

#include "tutti/base/error.h"

namespace tutti::cli {

// Rank 0, as the environment numbers it, tells the error as tell() does; a process that is told no number is rank 0.
// All ranks write the sentence for their launcher's report into the file of TORCHELASTIC_ERROR_FILE. The other ranks
// print a line that they leave where no launcher reads such a file.
void tell_once(const std::string& command, const Error& error);

}  // namespace tutti::cli
