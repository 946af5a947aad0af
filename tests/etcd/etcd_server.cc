// etcd cannot tell which port it got for 0, so two free ones are looked for and given to it; should somebody take them
// in between, it ends, and others are tried.
#include "tests/etcd/etcd_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/harness/reserved_port.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr int kAttempts = 5;

pid_t launch(const std::string& folder, int port, int peer_port) {
  const std::string client = "http://127.0.0.1:" + std::to_string(port),
                    peer = "http://127.0.0.1:" + std::to_string(peer_port), log = folder + "/log";
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::execlp("etcd", "etcd", "--name", "one", "--data-dir", (folder + "/data").c_str(), "--listen-client-urls",
           client.c_str(), "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer.c_str(),
           "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster", ("one=" + peer).c_str(),
           "--max-request-bytes", "16777216", static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

bool EtcdServer::installed() { return std::system("command -v etcd >/dev/null") == 0; }

Result<EtcdServer> EtcdServer::start() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string folder = std::filesystem::temp_directory_path() / "tutti-etcd-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) return system_error(errno, "cannot make a folder for etcd");
    const test::ReservedPort reserved, peers;
    const int port = reserved.number();
    EtcdServer server(launch(folder, port, peers.number()), folder, port);
    const Deadline deadline = Deadline::after_seconds(60);
    while (::waitpid(server.pid_, nullptr, WNOHANG) == 0) {
      if (connect({.host = "127.0.0.1", .port = std::uint16_t(port)}, deadline.at_most(std::chrono::seconds(1)), false)
              .ok())
        return server;
      if (deadline.expired()) return deadline.error("etcd does not listen");
      ::usleep(20000);
    }
    server.pid_ = -1;
  }
  return Error{.code = Code::kSystem, .detail = "etcd ended by itself, five times"};
}

EtcdServer::~EtcdServer() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

}  // namespace tutti
