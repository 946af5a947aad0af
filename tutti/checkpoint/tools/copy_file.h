#pragma once
// One safetensors file out of boxes that lie elsewhere, in little memory.
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/tools/pieces.h"

namespace tutti {

struct CopiedBox {
  TensorKey key;
  TensorBox box;
};

// "fc.weight", "fc.weight/momentum", "emb.0[0:1000, 0:64]": as in the files of a checkpoint.
std::string name_of_copy(const TensorKey& key, const TensorBox& box, const TensorShape& shape);

struct CopiedFile {
  StoredFile file;               // name left empty
  std::vector<StoredBox> boxes;  // as given; their `file` is 0
};

// At the descriptor's own place; does not flush. `path`: for errors. kUnsupported: a type that the format does not
// know.
Result<CopiedFile> copy_to_file(const TensorSource& source, std::span<const CopiedBox> boxes,
                                const SafetensorsMetadata& metadata, int fd, const std::string& path,
                                SharedProgress& progress);

}  // namespace tutti
