#include "tutti/launch/membership/own_address.h"

#include <gmock/gmock.h>

#include "tutti/transport/address.h"

namespace tutti {
namespace {

TEST(OwnAddress, IsTheOneThatReachesTheFirstThatCanBeReached) {
  EXPECT_EQ(own_address_toward("127.0.0.1:2379").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("http://127.0.0.1:2379/").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("no-such-host.invalid:2379,https://127.0.0.1").or_throw(), "127.0.0.1");
  EXPECT_EQ(own_address_toward("[::1]:2379").or_throw(), "::1");
  const std::string own = local_addresses().front();
  EXPECT_TRUE(is_local_address(own_address_toward(to_string(Address{.host = own, .port = 1})).or_throw())) << own;
}

TEST(OwnAddress, NoneIsASentence) {
  const auto none = own_address_toward("no-such-host.invalid:2379");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kUnreachable);
  EXPECT_THAT(to_string(none.error()), testing::HasSubstr("no address toward no-such-host.invalid:2379: "));
}

}  // namespace
}  // namespace tutti
