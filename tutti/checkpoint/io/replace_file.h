#pragma once
// A file that is replaced as a whole or not at all: written under a temporary name beside it, flushed, renamed.
#include <sys/stat.h>

#include <functional>
#include <optional>
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// Where a path leads, links followed.
struct ReplaceableFile {
  std::string path;
  std::optional<struct stat> existing;  // of the regular file that is there; none: there is nothing yet
};

// Ask before a long computation whose result goes to `path`. kInvalidArgument: it is there and no regular file (a
// device, a pipe, a folder), and a rename would put a file in its place; kSystem: the folder or the file cannot be
// written to.
Result<ReplaceableFile> replaceable_file(const std::string& path);

// The same, and tried out: makes the file under its temporary name, and removes it.
Status try_to_replace(const std::string& path);
// Whether files can be made in the folder, tried out by any number of ranks at once.
Status try_folder(const std::string& folder);
// Makes it first, if it is not there.
Status make_writable_folder(const std::string& folder);

// `write` gets a descriptor and the name for its errors. An existing file's mode is kept, and its owner where that may
// be set; a link keeps pointing where it did. Errors as above, and those of `write`; then nothing has changed.
Status replace_file(const std::string& path, const std::function<Status(int fd, const std::string& name)>& write);

}  // namespace tutti
