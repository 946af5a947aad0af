#pragma once
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace tutti::testing {

inline void write_script(const std::string& path, const std::string& text, mode_t mode = 0755) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

}  // namespace tutti::testing
