#pragma once
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// For reading, and never waits: a pipe without a writer, a device or a folder by mistake is kInvalidArgument, "PATH is
// not a regular file". kNotFound: there is no such file.
Result<Fd> open_regular_file(const std::string& path);

}  // namespace tutti
