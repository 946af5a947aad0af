#pragma once
// HTTP for the gateway: POST a text, get a text, or lines for as long as the server sends them. Private to store/etcd/.
// libcurl is opened by name, so a program that has no etcd loads none of its thirty libraries.
#include <functional>
#include <memory>
#include <string>

#include "tutti/base/deadline.h"

namespace tutti::etcd {

struct Security {
  std::string ca_file, certificate_file, key_file;
};

struct Response {
  long status = 0;
  std::string body;
};

// Threads: one at a time.
class Http {
 public:
  virtual ~Http() = default;

  // kUnreachable: nothing was sent. kPeerLost: it was, or part of it, and no answer came. kTimeout. kRefused:
  // certificates, which no waiting mends.
  virtual Result<Response> post(const std::string& url, const std::string& body, const std::string& token,
                                Deadline deadline) = 0;

  // Calls `line` for each line of an endless answer until it returns false (then: true) or the deadline passes (false).
  using Line = std::function<bool(std::string_view)>;
  virtual Result<bool> stream(const std::string& url, const std::string& body, const std::string& token,
                              const Line& line, Deadline deadline) = 0;
};

// By libcurl. kUnsupported where there is none.
Result<std::unique_ptr<Http>> open_http(Security security);

}  // namespace tutti::etcd
