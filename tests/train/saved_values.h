#pragma once
// What a checkpoint holds: its tensors, and its values, which a test may rename.
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>

#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/reader.h"

namespace tutti::test {

// Every tensor of a checkpoint, as bytes.
inline std::map<TensorKey, std::string> contents(const std::string& folder) {
  const auto saved = CheckpointReader::open(folder).or_throw();
  std::map<TensorKey, std::string> found;
  for (const auto& [key, tensor] : saved.manifest().tensors) {
    std::string bytes(*elements_of(tensor.shape) * size_of(tensor.dtype), '\0');
    saved.read(key, std::as_writable_bytes(std::span(bytes))).or_throw();
    found.emplace(key, std::move(bytes));
  }
  return found;
}

// Gives a value of the checkpoint in a folder another name.
inline void rename_value(const std::string& checkpoint, const std::string& from, const std::string& to) {
  const std::string path = checkpoint + "/manifest.json";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::string manifest = text.str();
  const std::string quoted = "\"" + from + "\":";
  manifest.replace(manifest.find(quoted), quoted.size(), "\"" + to + "\":");
  std::ofstream(path) << detail::with_manifest_digest(manifest);
}

}  // namespace tutti::test
