#include "tutti/transport/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const Result<std::string>& result) { return result.ok() ? *result : to_string(result.error()); }

TEST(Interface, ByNameAndBySubnet) {
  EXPECT_EQ(text_of(address_at("lo")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("127.0.0.0/8")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("127.0.0.1/32")), "127.0.0.1");
  EXPECT_EQ(text_of(address_at("126.0.0.0/7")), "127.0.0.1");
}

TEST(Interface, WhatIsNotThereIsToldWithWhatIs) {
  EXPECT_THAT(text_of(address_at("eth77")), AllOf(HasSubstr("Usage: no interface \"eth77\" is up here with an address"),
                                                  HasSubstr("(hint: this machine has "), HasSubstr("lo (127.0.0.1)")));
  EXPECT_THAT(text_of(address_at("203.0.113.0/24")),
              AllOf(HasSubstr("this machine has no address in 203.0.113.0/24"), HasSubstr("lo (127.0.0.1)")));
  EXPECT_THAT(text_of(address_at("2001:db8::/32")), HasSubstr("this machine has no address in 2001:db8::/32"));
}

TEST(Interface, NoSubnet) {
  for (const char* wrong : {"10.0.0.0/", "10.0.0.0/33", "/8", "::/129", "lo/8", "10.0.0.0/-1"})
    EXPECT_THAT(text_of(address_at(wrong)), HasSubstr("is no subnet, which reads 10.0.0.0/8 or fd00::/8")) << wrong;
}

}  // namespace
}  // namespace tutti
