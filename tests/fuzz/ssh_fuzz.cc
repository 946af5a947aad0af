// What stands in --hosts and in a hostfile, and what the two ends of an ssh session say to each other. The launcher
// reads what a host that it knows by name alone has written, the ssh node whatever comes on its standard input.
#include <algorithm>

#include "tests/fuzz/targets.h"
#include "tutti/launch/layout.h"
#include "tutti/launch/ssh/hosts.h"
#include "tutti/launch/ssh/protocol.h"

namespace tutti::fuzz {
namespace {

void check_hosts(const Result<launch::HostList>& list) {
  if (!list.ok()) return promise_sentence(list.error());
  promise(!list->hosts.empty(), "a list of hosts has one");
  promise(list->ranks.empty() || list->ranks.size() == list->hosts.size(), "a count for each host, or for none");
  for (const int ranks : list->ranks)
    promise(ranks >= 1 && ranks <= launch::kMostRanksPerNode, "a host has a number of ranks");
  for (const std::string& host : list->hosts) {
    // It becomes a word of a command line.
    promise(!host.empty() && host.front() != '-', "no host is an option of ssh");
    promise(std::all_of(host.begin(), host.end(), [](unsigned char c) { return c > ' ' && c != '\'' && c < 0x7f; }),
            "a host is one plain word");
    promise(std::count(list->hosts.begin(), list->hosts.end(), host) == 1, "a host is one node");
  }
}

bool is_port(int port) { return port >= 0 && port <= 65535; }

}  // namespace

void ssh(Input input) {
  const auto what = take(input) % 4;
  const std::string text = text_of(input);
  if (what == 0) {
    check_hosts(launch::parse_hosts(text));
  } else if (what == 1) {
    check_hosts(launch::parse_hostfile(text, "hosts"));
  } else if (what == 2) {
    const auto greeting = launch::parse_greeting(text);
    if (!greeting) return;
    promise(is_port(greeting->master_port) && is_port(greeting->store_port), "ports are ports");
    promise(launch::parse_greeting(encode(*greeting)) == greeting, "a greeting survives being written");
    promise(encode(*greeting).find('\n') == std::string::npos, "a greeting is one line");
  } else {
    if (const auto node_exit = launch::parse_node_exit(text)) {
      promise(node_exit->code >= 0 && node_exit->code <= 255, "the code of a process");
      promise(launch::parse_node_exit(encode(*node_exit)) == node_exit, "the exit of a node survives being written");
    }
    if (const auto orders = launch::parse_instructions(text)) {
      promise(launch::parse_instructions(encode(*orders)) == orders, "instructions survive being written");
      promise(encode(*orders).find('\n') == std::string::npos, "instructions are one line");
    }
    if (const auto signal = launch::parse_signal(text)) {
      promise(*signal > 0 && *signal <= 64, "a signal is one");
      promise(launch::parse_signal(launch::encode_signal(*signal)) == signal, "a signal survives being written");
    }
  }
}

}  // namespace tutti::fuzz
