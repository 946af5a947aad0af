#pragma once
// A port of loopback for a server that somebody else will start. While this lives the system gives it to nobody: it is
// bound, and not listened at. Whoever sets SO_REUSEADDR, as tutti, etcd and PyTorch do, can serve there all the same;
// a port that was merely free a moment ago may be another test's by then.
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::test {

class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    TUTTI_REQUIRE(::bind(socket_.get(), any, size) == 0 && ::getsockname(socket_.get(), any, &size) == 0,
                  "no port of loopback is free");
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }
  std::string text() const { return std::to_string(number_); }
  std::string address() const { return "127.0.0.1:" + text(); }

 private:
  Fd socket_;
  int number_ = 0;
};

}  // namespace tutti::test
