#pragma once
// One safetensors file of a checkpoint, written straight from where the rows lie.
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/writer.h"

namespace tutti {

// Told of a piece of at most 8 MiB that has gone into the file; an error ends the writing.
using ShardWritten = std::function<Status(int fd, const std::string& path, std::uint64_t bytes)>;

// The path's folder must be there, the file must not. The bytes are on disk when this returns. Adds the file and the
// boxes, with their digests, to `manifest`. `mark` is kept in the file, so that it cannot be taken for one of another
// checkpoint. On error a part of the file may be there.
Status write_shard(const std::string& folder, const std::string& name, std::span<const StateBox* const> boxes,
                   const std::string& mark, Manifest& manifest, const ShardWritten& written = {});

}  // namespace tutti
