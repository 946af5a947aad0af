#pragma once
// A real etcd on loopback, for as long as the object lives; its data in a folder that goes with it.
#include <sys/types.h>

#include <string>

#include "tutti/base/error.h"

namespace tutti {

class EtcdServer {
 public:
  static bool installed();
  static Result<EtcdServer> start();
  EtcdServer(EtcdServer&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), folder_(std::move(other.folder_)), port_(other.port_) {}
  ~EtcdServer();

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

 private:
  EtcdServer(pid_t pid, std::string folder, int port) : pid_(pid), folder_(std::move(folder)), port_(port) {}
  pid_t pid_;
  std::string folder_;
  int port_;
};

}  // namespace tutti
