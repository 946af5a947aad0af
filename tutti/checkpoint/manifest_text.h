#pragma once
// For the writer: what one rank has written, on its way to rank 0.
#include "tutti/checkpoint/manifest.h"

namespace tutti {

// As parse_manifest(), of a manifest whose tensors need not be whole.
Result<Manifest> parse_manifest_part(std::string_view text);

}  // namespace tutti
