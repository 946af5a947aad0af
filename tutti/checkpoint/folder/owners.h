#pragma once
// Who else could have written what a run is about to load.
#include <string>

#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

// Whether the folder of a checkpoint and the files in it belong to this user (or to root), and may not be written by
// everybody; the first that does not as a sentence, else empty. `save_folder`: where this run saves, or empty: on some
// shared disks what it makes there belongs to another user than it runs as (root, whom NFS makes nobody), and then so
// may the checkpoint.
std::string others_may_change(const std::string& checkpoint, const Manifest& manifest, const std::string& save_folder);

}  // namespace tutti
