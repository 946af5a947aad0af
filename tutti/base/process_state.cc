#include "tutti/base/process_state.h"

#include <fstream>
#include <string>

namespace tutti {

// /proc/PID/stat is "PID (name) state ...", and the name may hold anything.
bool is_suspended(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace tutti
