#pragma once
// What an agent knows of the job when it begins to look for the other nodes.
#include <functional>
#include <optional>
#include <string>

#include "tutti/launch/membership/membership_table.h"
#include "tutti/launch/membership/rendezvous_options.h"
#include "tutti/launch/membership/round.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

struct NodesOptions {
  int nodes = 1;      // that take part, at most
  int min_nodes = 0;  // at least; 0: as many
  int node = 0;       // the number that is asked for; -1: any (not kStatic)
  RendezvousBackend backend = RendezvousBackend::kStatic;
  RankCounts counts;
  Address store;              // the meeting place. kStatic: node 0 serves here; kElastic: the host may be a name
  std::optional<bool> hosts;  // kElastic: whether this node serves; none: if the meeting place is its own address
  std::string etcd;           // kEtcd: "10.0.0.5:2379", several with commas
  EtcdAccess etcd_access;
  Credentials credentials;
  std::string host;            // of this node, for words
  std::string about;           // what its agent wants the others to know (Round::nodes); at most some KiB
  std::string master_address;  // for the program; node 0's counts
  int master_port = 0;
  Duration timeout = std::chrono::minutes(5);             // for enough nodes to come
  Duration last_call = std::chrono::seconds(30);          // for more than enough
  Duration lost_after = std::chrono::milliseconds(2500);  // without a heartbeat
  Judge judge;                                            // none: a fault ends the job
  int interrupt = -1;                           // a descriptor; while it is readable meet() gives up with kAborted
  std::function<void(const std::string&)> say;  // lines while waiting; from any thread
};

inline bool uses_etcd(const NodesOptions& options) { return options.backend == RendezvousBackend::kEtcd; }

// The rules of its gatherings. min_nodes is set.
inline Limits limits_of(const NodesOptions& options) {
  const bool numbered = options.backend == RendezvousBackend::kStatic;
  return {.min = options.min_nodes,
          .max = options.nodes,
          .numbered = numbered,
          .join = options.timeout,
          .last_call = options.last_call,
          .lost_after = options.lost_after,
          .witness = uses_etcd(options),
          .succession = !uses_etcd(options) && !(numbered && options.min_nodes == options.nodes)};
}

}  // namespace tutti
