#pragma once
// What the two ends of an ssh session say to each other. The far end, `tutti node`, begins with a line on its standard
// output and ends with another there; everything in between is the job's. The near end answers with one line on
// standard input, and later sends signals there. Nothing of it stands on a command line, so nobody else sees it and no
// shell takes it apart.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// The first line of the far end: "TUTTI-NODE {json}". What comes before it is some shell's greeting.
struct Greeting {
  std::string version;  // of tutti
  std::string host;     // its own name
  std::string address;  // where ssh reached it; empty: not by ssh
  std::string from;     // where the near end is, as the far end sees it; empty: not by ssh
  int master_port = 0;  // two ports that are free there
  int store_port = 0;

  bool operator==(const Greeting&) const = default;
};
std::string encode(const Greeting& greeting);
// None: the line is not one.
std::optional<Greeting> parse_greeting(std::string_view line);

// The last line of the far end: "TUTTI-NODE-END {json}". A session that ends without it was cut off, whatever code ssh
// ends with: 255 is ssh's own for a lost connection, and just as well that of a rank.
struct Parting {
  int code = 0;      // of the launcher there
  bool met = false;  // it has met the others, who therefore hear of its end by themselves

  bool operator==(const Parting&) const = default;
};
std::string encode(const Parting& parting);
// None: the line is not one.
std::optional<Parting> parse_parting(std::string_view line);

// The answer: what the far end starts.
struct Instructions {
  std::vector<std::string> arguments;            // of `tutti`
  std::string folder;                            // to be in
  std::map<std::string, std::string> variables;  // to set, the job's secret among them

  bool operator==(const Instructions&) const = default;
};
std::string encode(const Instructions& instructions);
std::optional<Instructions> parse_instructions(std::string_view line);

// "signal 15"
std::string encode_signal(int signal);
std::optional<int> parse_signal(std::string_view line);

}  // namespace tutti
