#pragma once
// The hosts of a job as a user lists them: --hosts a:8,b:2 and hostfiles.
//   hostfile := lines of  HOST  |  HOST:N  |  HOST N  |  HOST slots=N ; '#' begins a comment
// A host that stands in several lines has the sum of its counts, or one rank a line where none has a count (PBS writes
// such files). HOST is what ssh takes: a name, user@name, an address; one of IPv6 in brackets where a count follows.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct HostList {
  std::vector<std::string> hosts;  // by node
  std::vector<int> ranks;          // of each; empty: no count was given

  bool operator==(const HostList&) const = default;
};

// "a:8,b:2". kUsage names the part that makes no sense, a host that stands there twice, and one without a count where
// others have one.
Result<HostList> parse_hosts(std::string_view text);
// The text of a hostfile. `path` is for words.
Result<HostList> parse_hostfile(std::string_view text, const std::string& path);

}  // namespace tutti
