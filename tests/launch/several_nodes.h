#pragma once
// Several agents on loopback, as on several hosts: what the tests of all ways to meet share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/eventually.h"
#include "tests/harness/reserved_port.h"
#include "tests/launch/await_file.h"
#include "tests/launch/running.h"

namespace tutti::testing {

using Arguments = std::vector<std::string>;

class SeveralNodes : public ::testing::Test {
 protected:
  static Arguments with(Arguments first, const Arguments& rest) {
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  }

  // A rank that says where it is ("world 2 in 1, restart 0, at 127.0.0.1": size, round, restarts, master), and stays
  // until end_all().
  Arguments rank() const {
    return {"sh", "-c",
            "echo \"world $WORLD_SIZE in $TUTTI_GENERATION, restart $TORCHELASTIC_RESTART_COUNT, at $MASTER_ADDR\"; "
            "while [ ! -e " +
                end_file() + " ]; do sleep 0.05; done"};
  }
  void end_all() const { std::ofstream(end_file()) << "end"; }

  // Runs examples/resume for this many steps.
  Arguments resuming(const std::string& steps) const { return {TUTTI_TEST_RESUME, state_folder(), steps}; }
  std::string state_folder() const { return folder_.path() + "/state"; }
  void await_next_save() const {
    const std::string before = newest_checkpoint(state_folder());
    EXPECT_TRUE(test::eventually([&] { return newest_checkpoint(state_folder()) != before; })) << "no rank has saved";
  }

  const std::map<std::string, std::string> secret_ = {{"TUTTI_SECRET", "a word that all nodes know"}};
  const Folder folder_;

 private:
  std::string end_file() const { return folder_.path() + "/end"; }
};

}  // namespace tutti::testing
