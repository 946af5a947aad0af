#include "tutti/transport/shm/host.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

namespace tutti {
namespace {

constexpr std::size_t kMiB = std::size_t(1) << 20;

// Sets a variable for the time of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

Credentials credentials() { return {.secret = Secret::from_text("a secret of this test"), .job = "test"}; }

TEST(Host, ArenasOfDifferentReservesAreMappedWhole) {
  auto small = Host::open(credentials(), 0).or_throw(), large = Host::open(credentials(), 1).or_throw();
  const std::vector<std::string> contacts = {small->contact(), large->contact()};
  const Deadline deadline = Deadline::after_seconds(60);
  Status joined;
  std::thread other([&] { joined = large->join(contacts, {0, 1}, 1, 64 * kMiB, deadline); });
  small->join(contacts, {0, 1}, 0, 4 * kMiB, deadline).or_throw();
  other.join();
  joined.or_throw();

  const std::size_t offset = large->arena().grow(32 * kMiB).or_throw(), last = offset + 32 * kMiB - 1;
  large->base(1)[last] = std::byte{42};
  const Host::Place place = small->find(small->base(1) + last, 1);
  EXPECT_EQ(place.owner, 1);
  EXPECT_EQ(place.offset, last);
  ASSERT_EQ(small->base(1)[last], std::byte{42});
  EXPECT_LE(small->arena().reserved(), 4 * kMiB);
}

TEST(Host, AFolderTooLongForASocketIsPassedOver) {
  std::string pattern = std::filesystem::temp_directory_path() / "tutti-host-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const std::filesystem::path long_one = folder / std::string(120, 'x');
  std::filesystem::create_directory(long_one);
  {
    const Variable runtime("XDG_RUNTIME_DIR", long_one);
    const auto host = Host::open(credentials(), 0);
    ASSERT_TRUE(host.ok()) << to_string(host.error());
    EXPECT_THAT((*host)->contact(), testing::StartsWith("/tmp/tutti-"));
    EXPECT_TRUE(std::filesystem::is_empty(long_one));
  }
  {
    const Variable runtime("XDG_RUNTIME_DIR", folder);
    EXPECT_THAT(Host::open(credentials(), 0).or_throw()->contact(), testing::StartsWith(folder.string()));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti
