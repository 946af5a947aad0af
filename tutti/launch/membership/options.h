#pragma once
// What the command line says about how the nodes meet, by torchrun's names where they mean the same; and what an agent
// knows of its job when it begins to look for the other nodes.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/membership/rendezvous.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti::launch {

// How the nodes find each other (--rdzv-backend).
enum class RendezvousBackend {
  kStatic,   // node 0 serves the store, and every node has a number of its own
  kElastic,  // the first node that owns the endpoint's address serves it; nodes are numbered in the order they come
  kEtcd,     // an etcd server of the site
};

// The properties of a backend that the command line and the agent depend on.
struct BackendTraits {
  RendezvousBackend backend;
  const char* name;
  int default_port = 0;            // of --rdzv-endpoint; 0: there is none
  bool numbered = false;           // every node has a number (--node-rank), and node 0 is at --master-addr
  bool node_serves = false;        // a node of the job serves the store
  const char* endpoint = nullptr;  // what --rdzv-endpoint needs; null: it is optional
};
const BackendTraits& traits_of(RendezvousBackend backend);

// What an etcd server may demand. The password comes from TUTTI_ETCD_PASSWORD: everybody can see a command line.
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
  bool failover = true;
  EtcdAccess etcd;
  std::vector<std::string> without_effect;  // torchrun's keys that were given and change nothing here
};

// As typed: "2:4", "elastic", "10.0.0.1:29400", "join_timeout=60,is_host=1". kUsage names what is wrong.
Result<RendezvousOptions> parse_rendezvous(const std::string& nnodes, const std::string& backend,
                                           const std::string& endpoint, const std::string& conf);

// For open_rendezvous().
struct NodesOptions {
  int nodes = 1;      // the largest number that takes part
  int min_nodes = 0;  // the smallest; 0: the same as `nodes`
  int node = 0;       // the number that this node asks for; -1: any (not kStatic)
  RendezvousBackend backend = RendezvousBackend::kStatic;
  RankCounts counts;
  transport::Address store;   // where the nodes meet. kStatic: node 0 serves here; kElastic: the host may be a name
  std::optional<bool> hosts;  // kElastic: whether this node serves; none: if the meeting point is its own address
  bool failover = true;       // not kEtcd: the store has a standby if the job can continue without a node
  std::string etcd;           // kEtcd: "10.0.0.5:2379", several with commas
  EtcdAccess etcd_access;
  transport::Credentials credentials;
  std::string host;            // of this node, for messages
  std::string about;           // what its agent wants the other nodes to know (Round::nodes); at most some KiB
  std::string master_address;  // for the program; node 0's is used
  int master_port = 0;
  Duration timeout = std::chrono::minutes(5);             // for enough nodes to come
  Duration last_call = std::chrono::seconds(30);          // for more than enough
  Duration lost_after = std::chrono::milliseconds(2500);  // without a heartbeat
  Judge judge;                                            // none: a fault ends the job
  int interrupt = -1;                           // a descriptor; while it is readable join() gives up with kAborted
  std::function<void(const std::string&)> say;  // progress lines while waiting; called from any thread
};

}  // namespace tutti::launch
