#pragma once
// Bytes of a checkpoint's files that lie where only some ranks can read them, brought to the ranks that want them.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/comm/group.h"

namespace tutti {

struct FileRun {
  std::uint64_t file = 0;  // in Manifest::files
  std::uint64_t offset = 0, bytes = 0;
};

// What of the files for which `far` says so is needed to read the boxes of `wanted`, whole chunks, in runs of 8 MiB at
// most, by file and offset. Of a tensor that has another shape there all of it: who reads it says what becomes of that.
// One that the checkpoint does not have needs nothing.
std::vector<FileRun> runs_to_read(const Manifest& manifest, std::span<const StateBox> wanted,
                                  const std::function<bool(std::uint64_t file)>& far);

// Collective: each rank gets its `wanted`, which `server(file)` reads for it. Through 256 MiB of memory at most, or
// 8 MiB for each rank. Equal on all ranks: ok, or the error of the first rank that could not read or take them. Throws
// Exception where the group ends.
struct Fetching {
  std::function<int(std::uint64_t file)> server;  // the same on every rank
  std::function<Status(const FileRun& run, std::span<std::byte> into)> read;
  std::function<Status(const FileRun& run, std::span<const std::byte> bytes)> take;
};
Status fetch(const Group& group, const std::vector<FileRun>& wanted, const Fetching& how);

}  // namespace tutti
