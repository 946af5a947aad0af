#pragma once
// What one rank has written of a checkpoint, and how the parts become one.
#include "tutti/checkpoint/manifest.h"

namespace tutti {

// As parse_manifest(), of a manifest whose tensors need not be whole.
Result<Manifest> parse_manifest_part(std::string_view text);

// Adds the files and boxes of a part.
void merge(Manifest& into, Manifest part);

}  // namespace tutti
