#pragma once
// The URL of a rendezvous: scheme, place, and what the query says of this rank.
//   env://   tcp://host:port   tcp://[::1]:port   file:///absolute/path   unix://@name   unix:///absolute/path
// each with ?rank=R&world_size=N
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/error.h"

namespace tutti::rendezvous {

enum class Scheme { kEnv, kTcp, kFile, kUnix };

struct RendezvousUrl {
  Scheme scheme = Scheme::kEnv;
  std::string host;        // kTcp
  std::uint16_t port = 0;  // kTcp, never 0
  std::string path;        // kFile and kUnix: absolute, or of kUnix a name that begins with @ and is in no folder
  std::optional<int> rank;
  std::optional<int> world_size;
};

// kUsage names the part that is wrong, what was expected, and the nearest known word for a mistyped one.
Result<RendezvousUrl> parse_url(const std::string& url);

}  // namespace tutti::rendezvous
