#pragma once
// For readers and tools: what lies in the folder of a checkpoint, looked at without believing it.
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

// The folders of checkpoints that `path` means, the best first: itself, or the step-... folders in it, the newest
// first. kNotFound: there is none.
Result<std::vector<std::string>> checkpoints_at(std::string path);
// That of the checkpoint in `folder`. kCorrupt names the file; it is also the error where the folder has the name of
// another step.
Result<Manifest> read_manifest(const std::string& folder);
// Opens a file of the checkpoint and looks at its kind, its size and its header. kCorrupt names the file.
Result<Fd> open_stored_file(const std::string& folder, const StoredFile& stored);
// For so many that stay open: where they are more than this process may have, its soft limit is raised so far as the hard
// one lets it.
void make_room_for_files(std::size_t count);

}  // namespace tutti
