#pragma once
// The hosts of a job as a user lists them: --hosts a:8,b:2 and hostfiles.
//
//   hostfile := lines of  HOST  |  HOST:N  |  HOST N  |  HOST slots=N ; '#' begins a comment
//
// A host in several lines has the sum of its counts, or one rank for each line if no line has a count (PBS writes such
// files). HOST is what ssh accepts: a name, user@name, an address; an IPv6 address with a count is in brackets.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::launch {

struct HostList {
  std::vector<std::string> hosts;  // by node
  std::vector<int> ranks;          // of each; empty: no count was given

  bool operator==(const HostList&) const = default;
};

// "a:8,b:2". kUsage names an invalid part, a host that is listed twice, or a host without a count among hosts with one.
Result<HostList> parse_hosts(std::string_view text);
// The text of a hostfile; error messages name `path`.
Result<HostList> parse_hostfile(std::string_view text, const std::string& path);

// Whether a host of the list is this one.
bool is_this_host(const std::string& host);

}  // namespace tutti::launch
