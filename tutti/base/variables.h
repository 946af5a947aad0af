#pragma once
// The names of all environment variables that tutti reads, so that one that is misspelt does not pass for one that is
// not set.
#include <span>
#include <string>
#include <vector>

#include "tutti/base/env.h"

namespace tutti {

// Without "TUTTI_". The test layers.variables finds in the sources what is missing here.
std::span<const std::string> known_variables();

// A sentence for each variable of `environment` that begins with TUTTI_, is none of ours, and is near to one.
std::vector<std::string> misspelt_variables(const Environment& environment);

}  // namespace tutti
