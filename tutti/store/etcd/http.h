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
  // kUnsupported where there is no libcurl.
  static Result<std::unique_ptr<Http>> create(Security security);
  ~Http();

  // kUnreachable: nothing was sent. kPeerLost: it was, or part of it, and no answer came. kTimeout. kRefused:
  // certificates, which no waiting mends.
  Result<Response> post(const std::string& url, const std::string& body, const std::string& token, Deadline deadline);

  // Calls `line` for each line of an endless answer until it returns false (then: true) or the deadline passes (false).
  using Line = std::function<bool(std::string_view)>;
  Result<bool> stream(const std::string& url, const std::string& body, const std::string& token, const Line& line,
                      Deadline deadline);

 private:
  class Easy;
  Http() = default;
  std::unique_ptr<Easy> calls_, streams_;
};

}  // namespace tutti::etcd
