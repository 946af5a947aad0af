#include "tutti/transport/shm/host.h"

#include <gmock/gmock.h>

#include <thread>

namespace tutti::transport {
namespace {

constexpr std::size_t kHostMiB = std::size_t(1) << 20;

Credentials credentials() { return {.secret = Secret::from_text("a secret of this test"), .job = "test"}; }

TEST(Host, ArenasOfDifferentReservesAreMappedWhole) {
  auto small = Host::open(credentials(), 0).or_throw(), large = Host::open(credentials(), 1).or_throw();
  const std::vector<std::string> contacts = {small->contact(), large->contact()};
  const Deadline deadline = Deadline::after_seconds(60);
  Status joined;
  std::thread other([&] { joined = large->join(contacts, {0, 1}, 1, 64 * kHostMiB, deadline); });
  small->join(contacts, {0, 1}, 0, 4 * kHostMiB, deadline).or_throw();
  other.join();
  joined.or_throw();

  const std::size_t offset = large->arena().grow(32 * kHostMiB).or_throw(), last = offset + 32 * kHostMiB - 1;
  large->base(1)[last] = std::byte{42};
  const Host::ArenaAddress place = small->find(small->base(1) + last, 1);
  EXPECT_EQ(place.owner, 1);
  EXPECT_EQ(place.offset, last);
  ASSERT_EQ(small->base(1)[last], std::byte{42});
  EXPECT_LE(small->arena().reserved(), 4 * kHostMiB);
}

// A rank that is killed while it joins leaves nothing, and needs no folder that it may write to.
TEST(Host, ItsSocketIsInNoFolder) {
  const auto first = Host::open(credentials(), 0).or_throw(), second = Host::open(credentials(), 1).or_throw();
  EXPECT_THAT(first->contact(), testing::StartsWith("@tutti-"));
  EXPECT_NE(first->contact(), second->contact());
}

}  // namespace
}  // namespace tutti::transport
