#pragma once
// A real etcd on loopback, for as long as the object lives; its data in a folder that goes with it.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// A folder of certificates, made by openssl: an authority `ca.pem`, which signed `server` for 127.0.0.1 and `client`
// (each with .pem and .key), and a `stranger.pem`, an authority that signed none of them.
class Certificates {
 public:
  static bool installed();  // openssl
  Certificates();
  Certificates(const Certificates&) = delete;
  ~Certificates();
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

class EtcdServer {
 public:
  static bool installed();
  // `options`: more of etcd's own. With `certificates` it speaks https alone, as `server`.
  static Result<EtcdServer> start(const std::vector<std::string>& options = {},
                                  const Certificates* certificates = nullptr);
  EtcdServer(EtcdServer&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), folder_(std::move(other.folder_)), port_(other.port_) {}
  ~EtcdServer();

  // From now on a password is asked for. There are `root` ("of root"), `tutti` ("of tutti"), who may read and write
  // below /tutti/, and `guest` ("of guest"), who may nothing. Over http alone.
  Status demand_passwords() const;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

 private:
  EtcdServer(pid_t pid, std::string folder, int port) : pid_(pid), folder_(std::move(folder)), port_(port) {}
  pid_t pid_;
  std::string folder_;
  int port_;
};

}  // namespace tutti
