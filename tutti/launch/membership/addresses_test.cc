#include "tutti/launch/membership/addresses.h"

#include <gmock/gmock.h>

#include "tutti/transport/socket.h"

namespace tutti::launch {
namespace {

TEST(OwnAddress, ReachesTheFirstReachableEndpoint) {
  EXPECT_EQ(own_address_toward("127.0.0.1:2379").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("http://127.0.0.1:2379/").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("no-such-host.invalid:2379,https://127.0.0.1").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("[::1]:2379").or_throw(), "::1");
  const std::string own = transport::local_addresses().front();
  EXPECT_TRUE(
      transport::is_local_address(own_address_toward(to_string(transport::Address{.host = own, .port = 1})).or_throw()))
      << own;
}

TEST(OwnAddress, AnErrorNamesTheEndpoints) {
  const auto none = own_address_toward("no-such-host.invalid:2379");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kUnreachable);
  EXPECT_THAT(to_string(none.error()), testing::HasSubstr("no address toward no-such-host.invalid:2379: "));
}

TEST(FreePort, IsTheWantedOneOrAny) {
  const int port = free_port("127.0.0.1").or_throw();
  EXPECT_GT(port, 0);
  EXPECT_EQ(free_port("127.0.0.1", port).or_throw(), port) << "it was closed again";
  const auto held = listen(transport::Address{.host = "127.0.0.1"}).or_throw();
  const auto taken = free_port("127.0.0.1", held.address.port);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::kAddressInUse);
}

}  // namespace
}  // namespace tutti::launch
