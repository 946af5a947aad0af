// /proc/net/tcp lists each listening socket with its port, the owner's user id and an inode; /proc/PID/fd holds links
// "socket:[INODE]". The link can be read for processes of the same user (all, for root); for the others the user's name
// is what remains.
#include "tutti/transport/socket.h"

#include <dirent.h>
#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct ListeningSocket {
  std::string inode;
  uid_t user;
};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A line: "0: 0100007F:7350 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 ..."
std::optional<ListeningSocket> find_listener(const char* table, std::uint16_t port) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode))
      continue;
    const auto colon = local.rfind(':');
    if (state != "0A" || colon == local.npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port)
      return ListeningSocket{inode, uid_t(parse_int(user).value_or(-1))};
  }
  return std::nullopt;
}

std::string command_line(const std::string& process) {
  std::ifstream in("/proc/" + process + "/cmdline");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');  // '\0' between, '\n' inside
  text = trim(text);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return sanitize_line(text);  // anybody's process
}

bool has_socket(const std::string& process, const std::string& link) {
  const std::string path = "/proc/" + process + "/fd";
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) return false;
  while (const dirent* entry = ::readdir(folder.get())) {
    char target[64];
    const ssize_t size = ::readlink((path + "/" + entry->d_name).c_str(), target, sizeof target);
    if (size > 0 && std::string_view(target, std::size_t(size)) == link) return true;
  }
  return false;
}

}  // namespace

std::string port_holder(const Address& address) {
  if (address.is_unix()) return {};
  auto socket = find_listener("/proc/net/tcp", address.port);
  if (!socket) socket = find_listener("/proc/net/tcp6", address.port);
  if (!socket) return {};
  const std::unique_ptr<DIR, CloseFolder> proc(::opendir("/proc"));
  const std::string link = "socket:[" + socket->inode + "]";
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    const std::string process = entry->d_name;
    if (parse_int(process) && has_socket(process, link)) return "pid " + process + " (" + command_line(process) + ")";
  }
  const passwd* user = ::getpwuid(socket->user);
  return user ? std::string("a process of user ") + user->pw_name
              : "a process of user id " + std::to_string(socket->user);
}

}  // namespace tutti
