#pragma once
// Behind open_tensors(): a function for each kind of file, and what they share.
#include <memory>
#include <string>

#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/open.h"

namespace tutti {

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

// Whether `path` is a folder, and not one of safetensors files of others.
bool is_checkpoint_folder(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_safetensors_file(const std::string& path);
// What torch.save() wrote.
Result<std::unique_ptr<TensorSource>> open_torch_file(const std::string& path);
// With an index, or with model.safetensors alone.
Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const std::string& path);

}  // namespace tutti
