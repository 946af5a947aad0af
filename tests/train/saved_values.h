#pragma once
// What a checkpoint says beside its tensors, changed as by somebody who made it.
#include <fstream>
#include <sstream>
#include <string>

#include "tutti/checkpoint/manifest.h"

namespace tutti::test {

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
