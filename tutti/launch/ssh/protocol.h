#pragma once
// What the ssh launcher and the ssh nodes send each other. The ssh node, `tutti node`, begins with a line on its
// standard output and ends with another there; everything in between is output of the job. The ssh launcher answers
// with one line on standard input, and later sends signals there. Nothing of it is on a command line, so no other user
// sees it and no shell interprets it.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/transport/address.h"

namespace tutti::launch {

// The first line of the ssh node: "TUTTI-NODE {json}". Lines before it are printed by the login shell.
struct Greeting {
  std::string version;  // of tutti
  std::string host;     // its own name
  std::string address;  // at which ssh reached it; empty: not by ssh
  std::string from;     // the address of the ssh launcher, as this node sees it; empty: not by ssh
  int master_port = 0;  // two ports that are free there
  int store_port = 0;
  std::vector<transport::InterfaceAddress> addresses;  // of its interfaces

  bool operator==(const Greeting&) const = default;
};
std::string encode(const Greeting& greeting);
// None: the line is not a greeting.
std::optional<Greeting> parse_greeting(std::string_view line);

// The last line of the ssh node: "TUTTI-NODE-END {json}". A session that ends without it was cut off, whatever the exit
// code of ssh: 255 means a lost connection, but can as well be the code of a rank.
struct NodeExit {
  int code = 0;         // of the launcher there
  bool joined = false;  // it had joined the other nodes, which therefore notice its end themselves

  bool operator==(const NodeExit&) const = default;
};
std::string encode(const NodeExit& exit);
// None: the line is not a node's last one.
std::optional<NodeExit> parse_node_exit(std::string_view line);

// The answer: what the ssh node starts.
struct Instructions {
  std::vector<std::string> arguments;            // of `tutti`
  std::string folder;                            // the working directory
  std::map<std::string, std::string> variables;  // to set, the job's secret among them

  bool operator==(const Instructions&) const = default;
};
std::string encode(const Instructions& instructions);
std::optional<Instructions> parse_instructions(std::string_view line);

// "signal 15"
std::string encode_signal(int signal);
std::optional<int> parse_signal(std::string_view line);

}  // namespace tutti::launch
