#pragma once
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

// A new file of this text takes the name, whole or not at all. What had the name before (a file, a link, a pipe that
// nobody reads) is neither opened nor followed, so that whoever may put something there leads the text nowhere and
// keeps nobody waiting; it is gone then. Does not ask for it to be on disk. kSystem: it is a folder, or the folder that
// it would lie in cannot be written to.
Status write_new_file(const std::string& path, std::string_view text);

}  // namespace tutti
