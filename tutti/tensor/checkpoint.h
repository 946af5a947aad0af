#pragma once
// The parameters and buffers of a module as a safetensors file, by the names that Python's state_dict() gives them.
#include <string>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace torch::nn {
class Module;
}

namespace tutti {

// One rank is enough: after DataParallel all have the same. Blocks; replaces the file at once or not at all.
Status save_module(const torch::nn::Module& module, const std::string& path, const SafetensorsMetadata& metadata = {});
// Into the tensors that the module has. Names, shapes and element types must be the same on both sides; the error names
// the first difference, and then nothing was changed.
Status load_module(torch::nn::Module& module, const std::string& path);

}  // namespace tutti
