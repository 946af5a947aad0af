#pragma once
// Files and folders. A read or write is complete or returns an error that names the file. `name` is the file's name in
// errors.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Opens a file for reading. `more`: additional flags of open(2), such as O_NONBLOCK, so that a pipe does not block the
// caller. kNotFound: the file does not exist.
Result<Fd> open_file(const std::string& path, int more = 0);
// Writes at the descriptor's offset.
Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name);
// Reads at `offset` without moving the descriptor's own offset. kCorrupt: the file is too short.
Status read_all(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& name);
// Replaces the contents of a file, without fsync(). After an error the file may hold a part of the text.
Status write_file(const std::string& path, std::string_view text);
// Returns the contents of a regular file. kLimit: it has more than `most` bytes.
Result<std::string> read_file(const std::string& path, std::uint64_t most);
// Flushes the directory entries of a folder to disk.
Status sync_folder(const std::string& folder);

// Creates a new file with this text under a temporary name and renames it to `path`, without fsync(). An existing file,
// link or pipe at `path` is replaced. It is neither opened nor followed, so it can neither redirect the text nor block
// the caller. kSystem: `path` is a folder, or its folder is not writable.
Status write_new_file(const std::string& path, std::string_view text);

// Opens a regular file for reading; never blocks. kInvalidArgument: it is a pipe, a device or a folder. kNotFound: the
// file does not exist.
Result<Fd> open_regular_file(const std::string& path);

// Creates a folder and its missing parents, or does nothing if it exists. kInvalidArgument: a file or a dangling link
// is in the way; the error names it and says what to do. kSystem: any other failure.
Status make_folder(const std::string& folder);
// Whether ulimit -f allows a file of this size. A process that exceeds it is killed (SIGXFSZ).
bool may_grow_to(std::uint64_t bytes);

}  // namespace tutti
