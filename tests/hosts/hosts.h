#pragma once
// Hosts on one machine: namespaces (network, mounts, host name) with a switch between them, each with its own
// /etc/hosts, /dev/shm, host name and addresses, and cables that can be cut in one direction or both, slowed and made
// lossy. They are made as root, or where users may make user namespaces; nothing of them is seen outside.
//
// Host 0 is "node-a" at 10.77.0.1 and fd77::1, host 1 "node-b" at 10.77.0.2, and so on.
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/hosts/rough_cable.h"
#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti::testing {

// Threads: one, the main thread.
class Hosts {
 public:
  // The error says what is missing or forbidden here.
  static Result<std::unique_ptr<Hosts>> make(int count);
  ~Hosts();  // ends every process on the hosts
  Hosts(const Hosts&) = delete;

  int count() const { return int(holders_.size()) - 1; }
  static std::string name(int host);
  static std::string address(int host);
  static std::string address6(int host);
  // A folder of the host alone, for its runtime folder and temporary files.
  std::string folder(int host) const;

  // How a program is started on the host: words to be put before it and its arguments. The process stays the same one.
  std::vector<std::string> entering(int host) const;
  // Makes the calling process one of the host's, for good. For a forked child with one thread; false: errno says why.
  bool enter(int host) const;
  // Runs a script on the host and gives what it wrote; an error has its words.
  Result<std::string> shell(int host, const std::string& script) const;
  // What /etc/hosts says there from now on. At first every host knows the others by name.
  Status set_hosts_file(int host, const std::string& text) const;

  // What `from` sends to `to` is lost on its way, and nobody is told.
  Status cut(int from, int to);
  // No word gets from one side to the other, in both directions.
  Status partition(const std::vector<int>& side);
  // This share of what arrives at the host is lost.
  Status lose(int host, double share);
  // UDP does not get in: a firewall that somebody set up with TCP in mind.
  Status block_datagrams(int host);
  // What the host sends goes no faster than this.
  Status slow(int host, std::uint64_t bits_per_second);
  // From now on the host's cable is such a one, in both directions. Before anything runs on the host: its interface is
  // another one afterwards.
  Status roughen(int host, const Roughness& roughness);
  // A second network, with a switch and an interface eth1 for each host, at 10.78.0.1 and so on. What it may carry is
  // not for the functions above.
  Status add_network();
  static std::string second_address(int host);
  // All cables are whole again: no cut, no loss. (slow() and roughen() stay.)
  Status heal();
  // The plug is pulled: the interface has no carrier, and both ends may notice. plug_in() undoes it.
  Status unplug(int host) const;
  Status plug_in(int host) const;
  // The host loses its power: nothing leaves it any more, and its processes are gone.
  Status power_off(int host);

  // Processes of the host, but for the one that holds it.
  std::vector<pid_t> processes(int host) const;
  std::string census() const;  // their names, of all hosts

 private:
  Hosts() = default;
  Result<pid_t> hold(std::vector<std::string> command);
  Status prepare();
  Status lay_cables();
  Status set_addresses(int host) const;
  Status set_filter(int host) const;
  Result<std::string> run(std::vector<std::string> command) const;

  struct Cable {
    std::vector<bool> cut_from;  // by sender
    double loss = 0;
    bool no_datagrams = false;
  };
  std::string folder_, nsenter_;
  bool own_user_ = false;        // in a user namespace of our own
  std::vector<pid_t> holders_;   // 0: the switch; then the hosts
  std::vector<Fd> holds_;        // the holders' standard inputs, which end them
  std::vector<Cable> cables_;    // by receiver
  std::vector<pid_t> carriers_;  // that carry frames over rough cables
};

}  // namespace tutti::testing
