#include "tutti/transport/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Address, ParsesWhatItPrints) {
  for (const char* text :
       {"10.0.0.7:4123", "[fe80::1]:80", "[::1]:0", "unix:/run/user/0/x", "unix:@x", "head-node:29500", "localhost:1"})
    EXPECT_EQ(to_string(parse_address(text).or_throw()), text);
}

TEST(Address, TakesTheDefaultPort) {
  EXPECT_EQ(parse_address("10.0.0.7", 29500).or_throw(), (Address{.host = "10.0.0.7", .port = 29500}));
  EXPECT_EQ(parse_address("[::1]", 29500).or_throw(), (Address{.host = "::1", .port = 29500}));
  EXPECT_EQ(parse_address("::1", 29500).or_throw(), (Address{.host = "::1", .port = 29500}));
  EXPECT_EQ(parse_address("10.0.0.7:80", 29500).or_throw().port, 80);
}

TEST(Address, MistakesAreSentences) {
  const auto mistake = [](const char* text) { return to_string(parse_address(text).error()); };
  EXPECT_THAT(mistake(""), HasSubstr("it is empty"));
  EXPECT_THAT(mistake("unix:"), HasSubstr("the path is missing"));
  EXPECT_THAT(mistake("unix"), HasSubstr("the path is missing")) << "with a port behind it, it would be a path";
  EXPECT_THAT(mistake(":80"), HasSubstr("the host is missing"));
  EXPECT_THAT(mistake("host:port"),
              HasSubstr("\"host:port\" is not an address: the port \"port\" is not a number from 0 to 65535"));
  EXPECT_THAT(mistake("host:65536"), HasSubstr("not a number from 0 to 65535"));
  EXPECT_THAT(mistake("host:-1"), HasSubstr("not a number from 0 to 65535"));
  EXPECT_THAT(mistake("[::1"), HasSubstr("the closing ] is missing"));
  EXPECT_THAT(mistake("[::1]80"), HasSubstr("after ] comes :PORT"));
  EXPECT_THAT(mistake("1:2:3"), HasSubstr("is not an IPv6 address"));
  EXPECT_THAT(mistake("tcp://host:1"), HasSubstr("is not an address"));
  EXPECT_THAT(mistake("[[fe80]:80"), HasSubstr("a host name cannot contain these characters"));
  EXPECT_THAT(mistake("a host:1"), HasSubstr("a host name cannot contain these characters"));
}

TEST(Address, NumericTextResolvesToItself) {
  EXPECT_THAT(resolve({.host = "10.0.0.7", .port = 5}).or_throw(),
              testing::ElementsAre(Address{.host = "10.0.0.7", .port = 5}));
  const Address unix_socket{.path = "/x"};
  EXPECT_THAT(resolve(unix_socket).or_throw(), testing::ElementsAre(unix_socket));
}

TEST(Address, LocalhostResolvesToLoopback) {
  const auto found = resolve({.host = "localhost", .port = 7}).or_throw();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(is_loopback(found[0]));
  EXPECT_EQ(found[0].port, 7);
}

TEST(Address, UnknownHostIsNamed) {
  const auto found = resolve({.host = "no-such-host.invalid", .port = 1});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kUnreachable);
  EXPECT_THAT(to_string(found.error()), HasSubstr("cannot find the address of host \"no-such-host.invalid\""));
}

TEST(Address, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback({.host = host})) << host;
  for (const char* host : {"10.0.0.7", "::2", "128.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "a-name"})
    EXPECT_FALSE(is_loopback({.host = host})) << host;
}

TEST(Address, KnowsThisMachine) {
  EXPECT_THAT(local_addresses(), Contains("127.0.0.1"));
  for (const auto& host : local_addresses()) EXPECT_TRUE(is_local_address(host)) << host;
  EXPECT_TRUE(is_local_address("127.0.1.1"));
  EXPECT_FALSE(is_local_address("192.0.2.1"));  // reserved for documents
  EXPECT_FALSE(is_local_address("a-name"));
}

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const Result<std::string>& result) { return result.ok() ? *result : to_string(result.error()); }

TEST(Interface, ByNameAndBySubnet) {
  EXPECT_EQ(text_of(address_at("lo")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("127.0.0.0/8")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("127.0.0.1/32")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("126.0.0.0/7")), "127.0.0.1");
}

TEST(Interface, TowardsAHost) {
  EXPECT_EQ(interface_towards("127.0.0.1"), "") << "no other host is reached over loopback";
  EXPECT_EQ(interface_towards("no-such-host.invalid"), "");
}

TEST(Interface, AnErrorListsTheInterfacesThatExist) {
  EXPECT_THAT(text_of(address_at("eth77")), AllOf(HasSubstr("Usage: no interface \"eth77\" is up here with an address"),
                                                  HasSubstr("(hint: this machine has "), HasSubstr("lo (127.0.0.1)")));
  EXPECT_THAT(text_of(address_at("203.0.113.0/24")),
              AllOf(HasSubstr("this machine has no address in 203.0.113.0/24"), HasSubstr("lo (127.0.0.1)")));
  EXPECT_THAT(text_of(address_at("2001:db8::/32")), HasSubstr("this machine has no address in 2001:db8::/32"));
}

TEST(Interface, NoSubnet) {
  for (const char* wrong : {"10.0.0.0/", "10.0.0.0/33", "/8", "::/129", "lo/8", "10.0.0.0/-1"})
    EXPECT_THAT(text_of(address_at(wrong)), HasSubstr("is not a subnet such as 10.0.0.0/8 or fd00::/8")) << wrong;
}

}  // namespace
}  // namespace tutti::transport
