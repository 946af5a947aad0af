#include "tutti/rendezvous/identity.h"

#include <gmock/gmock.h>

#include <set>

namespace tutti {
namespace {

TEST(FileNameOf, IsPlainShortAndDistinct) {
  EXPECT_EQ(file_name_of("srun-812.0"), "srun-812.0");
  const std::vector<std::string> jobs = {"",
                                         ".",
                                         "..",
                                         "../x",
                                         "a/b",
                                         "a_b",
                                         "a:b",
                                         std::string(200, 'a'),
                                         std::string(199, 'a'),
                                         "1254424576.0;tcp://192.0.2.2:49975"};
  std::set<std::string> names;
  for (const std::string& job : jobs) {
    const std::string name = file_name_of(job);
    EXPECT_LE(name.size(), 40u);
    EXPECT_EQ(name.find('/'), std::string::npos);
    EXPECT_NE(name.front(), '.');
    names.insert(name);
  }
  EXPECT_EQ(names.size(), jobs.size());
}

TEST(DerivedPorts, AreDistinctStableAndBelowTheEphemeralRange) {
  for (const char* job : {"", "a", "srun-812.0", "torchrun-none-29500"}) {
    const auto ports = derived_ports(job);
    EXPECT_EQ(std::set(ports.begin(), ports.end()).size(), 4u);
    for (const auto port : ports) EXPECT_TRUE(port >= 20000 && port < 32000) << port;
    EXPECT_EQ(ports, derived_ports(job));
  }
  EXPECT_NE(derived_ports("srun-812.0"), derived_ports("srun-812.1"));
}

}  // namespace
}  // namespace tutti
