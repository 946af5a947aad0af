#include "tutti/rendezvous/reach_store.h"

#include <gmock/gmock.h>

namespace tutti::rendezvous {
namespace {

using ::testing::HasSubstr;
using OneHost = Identity::OneHost;

TEST(LoopbackText, IsANameOrANumber) {
  EXPECT_TRUE(is_loopback_text({.host = "localhost"}));
  EXPECT_TRUE(is_loopback_text({.host = "127.0.0.7"}));
  EXPECT_TRUE(is_loopback_text({.host = "::1"}));
  EXPECT_FALSE(is_loopback_text({.host = "10.0.0.1"}));
}

TEST(Serving, LiteralLoopbackIsItself) {
  const auto places =
      serving_addresses(transport::Address{.host = "127.0.0.1", .port = 7}, "MASTER_ADDR", OneHost::kYes);
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->front(), (transport::Address{.host = "127.0.0.1", .port = 7}));
}

TEST(Serving, LocalhostIsTheSameToAllWhateverItsOrderInTheHostsFile) {
  const auto places =
      serving_addresses(transport::Address{.host = "localhost", .port = 7}, "MASTER_ADDR", OneHost::kUnknown);
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->front().host, "127.0.0.1");
}

TEST(Serving, NeverTheWildcard) {
  for (const char* host : {"0.0.0.0", "::", "0", "0x0", "00.0", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"}) {
    const auto places = serving_addresses(transport::Address{.host = host, .port = 7}, "the URL", OneHost::kYes);
    ASSERT_FALSE(places.ok()) << host;
    EXPECT_THAT(to_string(places.error()), HasSubstr("(the URL), which is not an address that other ranks can connect "
                                                     "to (hint: give one address; this machine has "));
  }
}

TEST(Serving, SomebodyElsesAddressListsOurs) {
  const auto places = serving_addresses(transport::Address{.host = "203.0.113.9", .port = 7}, "the URL", OneHost::kNo);
  ASSERT_FALSE(places.ok());
  EXPECT_THAT(to_string(places.error()),
              HasSubstr("rank 0 is to serve at 203.0.113.9 (the URL), but that is not an address of this machine"));
}

TEST(Serving, LoopbackIsNoPlaceForSeveralHosts) {
  const auto places =
      serving_addresses(transport::Address{.host = "127.0.0.1", .port = 7}, "MASTER_ADDR", OneHost::kNo);
  ASSERT_FALSE(places.ok());
  EXPECT_THAT(to_string(places.error()), HasSubstr("would advertise the loopback address 127.0.0.1 (MASTER_ADDR)"));
}

TEST(Serving, FindsTheLineToChange) {
  const std::string hosts =
      "127.0.0.1\tlocalhost\n# 127.0.1.1 a\n10.0.0.7 a\n127.0.1.1 x.example a # made by the installer\n\n";
  EXPECT_EQ(loopback_line("a", hosts), "127.0.1.1 x.example a # made by the installer (line 4 of /etc/hosts)");
  EXPECT_EQ(loopback_line("localhost", hosts), "127.0.0.1\tlocalhost (line 1 of /etc/hosts)");
  EXPECT_EQ(loopback_line("b", hosts), "");
  EXPECT_EQ(loopback_line("installer", hosts), "") << "a comment names nobody";
  EXPECT_EQ(loopback_line("a", ""), "");
}

}  // namespace
}  // namespace tutti::rendezvous
