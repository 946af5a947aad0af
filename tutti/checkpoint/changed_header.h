#pragma once
// For stored_files.cc: what is wrong with a header whose digest is not the one that was saved.
#include <cstdint>
#include <string>

#include "tutti/base/error.h"
#include "tutti/checkpoint/manifest.h"

namespace tutti {

// kCorrupt, with the file and both digests, and so far as it can be found out: the byte that alone would explain it, a
// run of zeros, a length that is not the header's, the tensor in whose entry the damage lies, or that it is the header
// of another save. `fd`: the file, which has stored.bytes.
Error changed_header(int fd, const std::string& path, const StoredFile& stored, std::uint32_t digest);

}  // namespace tutti
