#pragma once
// Tests of jobs on several hosts: a fixture says how many it wants, a test starts `tutti` on them, and at its end
// nothing may be left there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/hosts/hosts.h"
#include "tests/launch/running.h"

namespace tutti::testing {

using Arguments = std::vector<std::string>;

class OnHosts : public ::testing::Test {
 protected:
  explicit OnHosts(int count) : count_(count) {}
  // Skips the test, with the reason, where hosts cannot be made.
  void SetUp() override;
  Hosts& hosts() { return *hosts_; }
  void TearDown() override;

  // `tutti ARGUMENTS` on a host, with the secret of all these tests. `around`: words to be put before the command.
  Running start(int host, Arguments arguments, std::map<std::string, std::string> changes = {},
                const Arguments& around = {});
  // The arguments of `tutti run` for node `number` of `nodes`, node 0 being on host 0. `rest`: more options, and the
  // program.
  static Arguments node(int number, int nodes, const std::string& ranks, const Arguments& rest);
  // The same where the nodes meet elsewhere: an address or a name of host 0.
  static Arguments node_at(const std::string& master, int number, int nodes, const std::string& ranks,
                           const Arguments& rest);
  // What must go well.
  void must(const Status& status) { ASSERT_TRUE(status.ok()) << to_string(status.error()); }
  const Folder& shared() const { return shared_; }  // a folder that all hosts see

 private:
  const int count_;
  std::unique_ptr<Hosts> hosts_;
  Folder shared_;
};

// The first line that has this text; empty if none.
std::string line_with(const std::string& text, const std::string& part);
// A rank of a world that adds numbers up (tests/launch/world.cc).
std::string world();
// A rank that gets into trouble (tests/hosts/faulty.cc).
std::string faulty();

}  // namespace tutti::testing
