#include "tutti/launch/ssh/master_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

const transport::InterfaceAddress kLoopback{.interface = "lo", .host = "127.0.0.1", .prefix = 8};
// Equal on all hosts, as the bridge of containers is.
const transport::InterfaceAddress kBridge{.interface = "docker0", .host = "172.17.0.1", .prefix = 16};

GreetedHost host(const std::string& name, std::vector<transport::InterfaceAddress> more) {
  std::vector<transport::InterfaceAddress> all = {kLoopback, kBridge};
  all.insert(all.end(), more.begin(), more.end());
  return {.name = name, .greeting = {.host = name, .addresses = all}};
}

const GreetedHost kA = host("a", {{.interface = "eth0", .host = "192.168.1.4", .prefix = 24},
                                  {.interface = "eth1", .host = "10.0.0.4", .prefix = 8}});
const GreetedHost kB = host("b", {{.interface = "eth0", .host = "10.7.0.5", .prefix = 8}});

std::string text_of(const std::vector<GreetedHost>& hosts, const std::string& iface = {}) {
  const auto found = master_address_of(hosts, iface);
  return found.ok() ? *found : to_string(found.error());
}

TEST(MasterAddress, IsTheOneOfSsh) {
  GreetedHost a = kA, b = kB;
  a.greeting.address = "10.0.0.4", a.greeting.from = "10.0.0.1";
  EXPECT_EQ(text_of({a, b}), "10.0.0.4");
  a.greeting.address = a.greeting.from = "127.0.0.1";
  b.greeting.address = "10.7.0.5", b.greeting.from = "10.0.0.4";
  EXPECT_EQ(text_of({a, b}), "10.0.0.4");
}

TEST(MasterAddress, IsAtTheInterfaceThatIsGiven) {
  GreetedHost a = kA;
  a.greeting.address = "10.0.0.4";
  EXPECT_EQ(text_of({a, kB}, "eth0"), "192.168.1.4");
  EXPECT_EQ(text_of({kA, kB}, "192.168.0.0/16"), "192.168.1.4");
  EXPECT_EQ(text_of({kA, kB}, "ib0").find("Usage: --iface on a: no interface \"ib0\" is up here"), 0u);
}

TEST(MasterAddress, WithoutSshIsInASubnetOfAllHosts) {
  EXPECT_EQ(text_of({kA, kB}), "10.0.0.4");
  const GreetedHost c = host("c", {{.interface = "eth0", .host = "192.168.1.6", .prefix = 24}});
  EXPECT_EQ(text_of({kA, c}), "192.168.1.4");
  EXPECT_EQ(text_of({kA, kB, c}),
            "Usage: no address of a is known at which b, c can reach it: the command of --ssh sets no SSH_CONNECTION, "
            "and they share no subnet (hint: give --iface NAME or --master-addr ADDRESS; a has docker0 (172.17.0.1), "
            "eth0 (192.168.1.4), eth1 (10.0.0.4))");
  GreetedHost by_number = kA;  // routed, as the user's list says
  by_number.name = "me@192.168.1.4";
  EXPECT_EQ(text_of({by_number, kB, c}), "192.168.1.4");
}

TEST(MasterAddress, OfOneMachineIsLoopback) {
  GreetedHost again = kA;
  again.name = "b";
  EXPECT_EQ(text_of({kA}), "127.0.0.1");
  EXPECT_EQ(text_of({kA, again}), "127.0.0.1");
}

}  // namespace
}  // namespace tutti::launch
