#include "tutti/base/machine.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace tutti {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

std::string boot_id() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(boot, id) ? id : host_name();  // a chroot without /proc
}

std::string machine_id() {
  std::string id = boot_id();
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) == 0) id += "/" + std::to_string(net.st_ino);
  return id;
}

}  // namespace tutti
