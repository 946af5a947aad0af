#pragma once
// Looks at every byte of a checkpoint, or of another source of tensors, and goes on where something is wrong: so one
// look finds all of it.
#include <string>
#include <vector>

#include "tutti/checkpoint/format/value_tree.h"
#include "tutti/checkpoint/tools/pieces.h"

namespace tutti {

struct VerifyReport {
  std::string path, format;
  std::size_t files = 0, tensors = 0;
  std::uint64_t bytes = 0;                  // of tensors
  bool has_digests = true;                  // otherwise only the layout was looked at
  std::vector<Error> troubles;              // each names file, tensor and bytes; those of one file by rising place
  std::vector<SkippedObject> skipped = {};  // whose tensors were not looked at
};

// `path`: as in open_tensors(); of a folder of a job the newest. An error: there is nothing to verify.
Result<VerifyReport> verify_tensors(const std::string& path, const BytesDone& tell = {});

}  // namespace tutti
