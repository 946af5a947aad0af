#include "tests/etcd/cutting_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <vector>

namespace tutti {

CuttingProxy::CuttingProxy(int port, std::string path, int every)
    : port_(port),
      every_(every),
      path_(std::move(path)),
      listener_(transport::listen({.host = "127.0.0.1"}).or_throw()),
      thread_([this] { serve(); }) {}

CuttingProxy::~CuttingProxy() {
  end_ = true;
  thread_.join();
}

void CuttingProxy::serve() {
  std::vector<std::thread> connections;
  while (!end_) {
    if (!transport::wait_readable(listener_.fd.get(), Deadline::after_seconds(0.05)).or_throw()) continue;
    auto client = transport::accept(listener_);
    if (client.ok() && *client)
      connections.emplace_back([this, fd = std::move(*client)]() mutable { pass(std::move(fd)); });
  }
  for (auto& connection : connections) connection.join();
}

void CuttingProxy::pass(Fd client) {
  auto server = transport::connect({.host = "127.0.0.1", .port = std::uint16_t(port_)}, Deadline::after_seconds(10));
  if (!server.ok()) return;
  bool cut = false;  // the answer to what was passed on last
  char bytes[65536];
  while (!end_) {
    pollfd both[2] = {{client.get(), POLLIN, 0}, {server->get(), POLLIN, 0}};
    if (::poll(both, 2, 50) <= 0) continue;
    for (const int from : {0, 1}) {
      if (both[from].revents == 0) continue;
      const ssize_t got = ::recv(both[from].fd, bytes, sizeof bytes, 0);
      if (got <= 0) return;
      const std::string_view text(bytes, std::size_t(got));
      if (from == 1 && cut) {
        ++cuts_;
        return;
      }
      if (from == 0 && text.starts_with("POST") && text.substr(0, text.find('\r')).find(path_) != text.npos)
        cut = ++requests_ % every_ == 0;
      if (!transport::send_all(both[1 - from].fd, std::as_bytes(std::span(text)), Deadline::after_seconds(10)).ok())
        return;
    }
  }
}

}  // namespace tutti
