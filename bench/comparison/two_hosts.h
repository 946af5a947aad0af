#pragma once
// Two hosts on one machine: network namespaces with a cable (veth) between them. Needs root, or a system that lets
// users make user namespaces.
#include <array>
#include <memory>
#include <string>

#include "bench/comparison/program.h"

namespace tutti::bench {

class TwoHosts {
 public:
  static constexpr const char* kAddress[] = {"10.77.0.1", "10.77.0.2"};
  static constexpr const char* kNetwork = "10.77.0.0/24";

  // Main thread only. The error says what is missing or forbidden here.
  static Result<std::unique_ptr<TwoHosts>> make();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;

  // The same program, to be run on that host (0 or 1).
  Program on(int host, Program program) const;
  // How a shell enters that host: a command to which a program and its arguments are added.
  std::vector<std::string> entering(int host) const;

 private:
  TwoHosts() = default;
  Result<int> hold(std::vector<std::string> command);
  Status lay_cable();

  std::string nsenter_;
  std::vector<int> holders_;  // processes that keep the namespaces open
  bool own_user_ = false;     // in a user namespace of our own
};

}  // namespace tutti::bench
