#pragma once
// Reading and writing of files: whole pieces or an error that names the file. `name` is that of the file, for errors.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// For reading. kNotFound: there is no such file. `more`: flags of open(2), such as O_NONBLOCK where a pipe by mistake
// must not keep the caller waiting for a writer.
Result<Fd> open_file(const std::string& path, int more = 0);
// At the descriptor's own place.
Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name);
// At `offset`; the descriptor's own place does not move. kCorrupt: the file ends before.
Status read_all(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& name);
// A file of this text, in place of what was there. Does not ask for it to be on disk; on error a part may be there.
Status write_file(const std::string& path, std::string_view text);
// The whole of a regular file. kLimit: it has more than `most` bytes.
Result<std::string> read_file(const std::string& path, std::uint64_t most);
// Asks for the names in a folder to be on disk.
Status sync_folder(const std::string& folder);

// A new file of this text takes the name, whole or not at all. What had the name before (a file, a link, a pipe that
// nobody reads) is neither opened nor followed, so that whoever may put something there leads the text nowhere and
// keeps nobody waiting; it is gone then. Does not ask for it to be on disk. kSystem: it is a folder, or the folder that
// it would lie in cannot be written to.
Status write_new_file(const std::string& path, std::string_view text);

// For reading, and never waits: a pipe without a writer, a device or a folder by mistake is kInvalidArgument, "PATH is
// not a regular file". kNotFound: there is no such file.
Result<Fd> open_regular_file(const std::string& path);

// The folder, and those above it that are missing. It may be there already. Where something else is in the way (a file,
// a link that leads nowhere) the error, kInvalidArgument, names that and what to do; for all else it is kSystem.
Status make_folder(const std::string& folder);

}  // namespace tutti
