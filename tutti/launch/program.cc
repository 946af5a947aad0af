// execve() tells a child that something is wrong in one word; looking first, in the parent, says what it is and what to
// do, before any rank is started.
#include "tutti/launch/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

Error usage(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The executables of a folder.
std::vector<std::string> executables_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const dir = opendir(folder.empty() ? "." : folder.c_str());
  if (!dir) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  return names;
}

// The path of the program of a folder whose name is nearest; none if none is near.
std::optional<std::string> nearest_program(const std::string& name, const std::string& folder) {
  const auto best = nearest(name, executables_in(folder));
  if (!best || !is_executable_file(folder + "/" + *best)) return std::nullopt;
  return folder.empty() ? *best : folder + "/" + *best;
}

// A script that starts with "#!": whether its interpreter can run. A file that is neither a script nor ELF is told as
// well.
Status check_format(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};  // executable but not readable is legal
  std::array<char, 256> head{};
  const ssize_t size = read(file.get(), head.data(), head.size() - 1);
  if (size == 0) return usage("'" + path + "' is an empty file");
  if (size < 4) return {};
  const std::string_view text(head.data(), std::size_t(size));
  if (text.starts_with("\x7f"
                       "ELF"))
    return {};
  if (!text.starts_with("#!")) {
    return usage(
        "'" + path + "' is neither a program of this machine nor a script that starts with #!",
        "name its interpreter: tutti run ... " + std::string(path.ends_with(".py") ? "python3 " : "sh ") + path);
  }
  std::string_view line =
      trim(text.substr(2, text.find('\n') == std::string_view::npos ? std::string_view::npos : text.find('\n') - 2));
  const bool dos = text.find('\r') != std::string_view::npos && text.find('\r') < text.find('\n');
  if (dos) {
    return usage(
        "'" + path +
            "' has DOS line ends, so its interpreter is looked for under a name that ends in a carriage return",
        "convert it: sed -i 's/\\r$//' " + path);
  }
  const std::string interpreter(line.substr(0, line.find_first_of(" \t")));
  if (!is_executable_file(interpreter)) {
    return usage(
        "the interpreter '" + interpreter + "' of the script '" + path + "' does not exist or is not executable",
        "correct the script's first line, or start it with its interpreter: tutti run ... python3 " + path);
  }
  return {};
}

Result<std::string> check_path(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const int cause = errno;
    if (cause != ENOENT && cause != ENOTDIR) {
      return usage("the program '" + path + "' cannot be reached: " + std::strerror(cause));
    }
    const auto slash = path.find_last_of('/');
    return usage("the program '" + path + "' does not exist",
                 did_you_mean(nearest_program(path.substr(slash + 1), slash == 0 ? "/" : path.substr(0, slash))));
  }
  if (S_ISDIR(info.st_mode)) return usage("'" + path + "' is a folder, not a program");
  if (!S_ISREG(info.st_mode)) return usage("'" + path + "' is not a file that can be executed");
  if (access(path.c_str(), X_OK) != 0) {
    return usage("the program '" + path + "' is not executable",
                 path.ends_with(".py")      ? "start it with its interpreter: tutti run ... python3 " + path
                 : info.st_uid == geteuid() ? "if it is a program: chmod +x " + path
                                            : std::string());
  }
  TUTTI_TRY(check_format(path));
  return path;
}

}  // namespace

Result<std::string> find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) return usage("the name of the program is empty");
  if (name.find('/') != std::string::npos) return check_path(name);
  for (const std::string& folder : split(search_path.empty() ? "/usr/local/bin:/usr/bin:/bin" : search_path, ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(path)) return check_path(path);
  }
  struct stat info {};
  if (stat(name.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return usage("'" + name + "' is a folder, not a program");
    return usage(
        "no program '" + name + "' in PATH",
        "there is one in this folder: ./" + name + (name.ends_with(".py") ? ", or python3 " + name : std::string()));
  }
  for (const std::string& folder : split(search_path, ':')) {
    if (const auto near = nearest_program(name, folder))
      return usage("no program '" + name + "' in PATH", did_you_mean(near));
  }
  return usage("no program '" + name + "' in PATH", "give its path, for example ./" + name);
}

}  // namespace tutti
