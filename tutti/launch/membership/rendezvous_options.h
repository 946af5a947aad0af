#pragma once
// What the command line says about how the nodes meet, by torchrun's names where they mean the same.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti {

// How the nodes find each other (--rdzv-backend).
enum class RendezvousBackend {
  kStatic,   // node 0 serves the store, and every node says which one it is
  kElastic,  // the first node whose own address the endpoint is serves it; nodes are numbered as they come
  kEtcd,     // an etcd server that is there already
};

// What an etcd server may ask for. The password comes from TUTTI_ETCD_PASSWORD: a command line is seen by everybody.
struct EtcdAccess {
  std::string user, password;
  std::string ca_file, certificate_file, key_file;  // for https://
};

struct RendezvousOptions {
  RendezvousBackend backend = RendezvousBackend::kStatic;
  std::optional<int> min, max;  // --nnodes
  std::string endpoint;         // "host:port", with the port; etcd: several with commas; empty: none given
  Duration last_call = std::chrono::seconds(30);
  std::optional<Duration> join_timeout, lost_after;
  std::optional<bool> is_host;
  EtcdAccess etcd;
  std::vector<std::string> without_effect;  // keys of torchrun's that were given and change nothing here
};

// As they were typed: "2:4", "elastic", "10.0.0.1:29400", "join_timeout=60,is_host=1". kUsage names what is wrong.
Result<RendezvousOptions> parse_rendezvous(const std::string& nnodes, const std::string& backend,
                                           const std::string& endpoint, const std::string& conf);

}  // namespace tutti
