#pragma once
// Other files of the same tensors, by one process in little memory: a checkpoint dealt out to any number of ranks, or
// the weights alone as others read them.
#include <string>
#include <vector>

#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/tools/copy_file.h"

namespace tutti {

enum class ShardSplit {
  kRows,     // each rank an equal range of the rows
  kColumns,  // of the second dimension
  kWhole,    // tensors as they are, dealt out by their bytes
};

// What each of `ranks` ranks gets of a source. What has fewer rows (or columns) than there are ranks stays whole.
std::vector<std::vector<CopiedBox>> deal_out(const TensorSource& source, int ranks, ShardSplit split);

// Writes FOLDER/step-... as if ranks with these boxes had saved it; its path. As a save does: whatever goes wrong
// leaves nothing. kInvalidArgument: there is one of this step, or a tensor is not whole; kUnsupported: a checkpoint
// does not know a type.
Result<std::string> write_checkpoint(const TensorSource& source, const std::vector<std::vector<CopiedBox>>& dealt,
                                     const CheckpointFacts& facts, const std::string& folder,
                                     const BytesDone& tell = {});

// The tensors of the model, without what an optimizer keeps, in `folder`: model-00001-of-00003.safetensors, ..., each
// of at most `most_bytes` (or of one tensor), and model.safetensors.index.json; model.safetensors where one is enough.
// Returns the names. kInvalidArgument: the folder has such files.
Result<std::vector<std::string>> write_weights(const TensorSource& source, const std::vector<TensorKey>& keys,
                                               std::uint64_t most_bytes, const std::string& folder,
                                               const BytesDone& tell = {});

}  // namespace tutti
