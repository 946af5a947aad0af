#pragma once
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// The folder, and those above it that are missing. It may be there already. Where something else is in the way (a file,
// a link that leads nowhere) the error, kInvalidArgument, names that and what to do; for all else it is kSystem.
Status make_folder(const std::string& folder);

}  // namespace tutti
