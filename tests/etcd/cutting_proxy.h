#pragma once
// Stands between a client and a server, and cuts connections at the worst moment: after a request has been passed on,
// before its answer is.
#include <atomic>
#include <memory>
#include <thread>

#include "tutti/transport/socket.h"

namespace tutti {

class CuttingProxy {
 public:
  // Cuts every `every`th request whose first line holds `path`.
  CuttingProxy(int port, std::string path, int every);
  ~CuttingProxy();
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(listener_.address.port); }
  int cuts() const { return cuts_; }

 private:
  void serve();
  void pass(Fd client);

  const int port_, every_;
  const std::string path_;
  transport::Listener listener_;
  std::atomic<bool> end_{false};
  std::atomic<int> cuts_{0}, requests_{0};
  std::thread thread_;
};

}  // namespace tutti
