#include "tutti/launch/ssh/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/launch/ssh/ssh.h"

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Names = std::vector<std::string>;

TEST(HostsOption, HostsHaveCountsOrNoneHas) {
  EXPECT_EQ(*parse_hosts("a:8,b:2"), (HostList{Names{"a", "b"}, {8, 2}}));
  EXPECT_EQ(*parse_hosts("a, me@b.example"), (HostList{Names{"a", "me@b.example"}, {}}));
  EXPECT_EQ(*parse_hosts("[fd77::1]:4,[fd77::2]:4"), (HostList{Names{"fd77::1", "fd77::2"}, {4, 4}}));
  EXPECT_EQ(*parse_hosts("fd77::1"), (HostList{Names{"fd77::1"}, {}}));
}

TEST(HostsOption, MistakesAreNamed) {
  const auto detail = [](const char* text) {
    const auto hosts = parse_hosts(text);
    EXPECT_EQ(hosts.error().code, Code::kUsage) << text;
    return hosts.error().detail;
  };
  EXPECT_EQ(detail("a:8,b"), "--hosts gives a count for some hosts, but none for b");
  EXPECT_EQ(detail("a:x"), "--hosts: 'a:x' needs a count from 1 to 4096");
  EXPECT_EQ(detail("a:0"), "--hosts: 'a:0' needs a count from 1 to 4096");
  EXPECT_EQ(detail("a,,b"), "--hosts: '' names no host");
  EXPECT_EQ(detail("-oProxyCommand=x"), "--hosts: '-oProxyCommand=x' names no host");
  EXPECT_EQ(detail("a;reboot"), "--hosts: 'a;reboot' names no host");
  EXPECT_EQ(detail("a,a"), "--hosts names a twice");
}

TEST(Hostfile, TakesTheUsualForms) {
  EXPECT_EQ(*parse_hostfile("# two\na slots=8\nb:2  # the small one\n\nc 4\n", "hosts"),
            (HostList{Names{"a", "b", "c"}, {8, 2, 4}}));
  EXPECT_EQ(*parse_hostfile("a\nb\n", "hosts"), (HostList{Names{"a", "b"}, {}}));
  EXPECT_EQ(*parse_hostfile("a\nb\na\na\n", "hosts"), (HostList{Names{"a", "b"}, {3, 1}}));  // as PBS writes it
  EXPECT_EQ(*parse_hostfile("a slots=2\na slots=3\n", "hosts"), (HostList{Names{"a"}, {5}}));
}

TEST(Hostfile, MistakesAreNamedWithTheirLine) {
  EXPECT_EQ(parse_hostfile("a\nb slots=0\n", "hosts").error().detail,
            "hosts, line 2: 'b slots=0' needs a count from 1 to 4096");
  EXPECT_EQ(parse_hostfile("a 1 2\n", "hosts").error().detail,
            "hosts, line 1: 'a 1 2' has more than a host and a count");
  EXPECT_EQ(parse_hostfile("# nobody\n", "hosts").error().detail, "hosts names no host");
  EXPECT_EQ(parse_hostfile("a 2\nb\n", "hosts").error().detail, "hosts gives a count for some hosts, but none for b");
}

TEST(Session, OnlyAShellOverThereReadsAnything) {
  SshOptions options;
  options.self = "/opt/it's here/tutti";
  const auto command = session_command(options, "far");
  EXPECT_EQ(command.front(), "ssh");
  EXPECT_EQ(command[command.size() - 2], "far");
  EXPECT_THAT(command.back(), HasSubstr("exec sh -c 'if [ -x "));
  EXPECT_EQ(session_command(options, "localhost").front(), "sh");
  options.shell = {"rsh", "-x"};
  EXPECT_THAT(session_command(options, "localhost"), ElementsAre("rsh", "-x", "localhost", ::testing::_));
}

}  // namespace
}  // namespace tutti::launch
