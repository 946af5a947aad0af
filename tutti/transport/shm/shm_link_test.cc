#include "tutti/transport/shm/shm_link.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/link_conformance.h"
#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti::transport {
namespace {

// Memory as two processes would share it: the control block, two bell lines, and a part for each rank's rings.
struct Shared {
  static constexpr std::size_t kPart = 1 << 20;
  Shared()
      : memory(::mmap(nullptr, 4096 + 2 * kPart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
               4096 + 2 * kPart) {}

  std::unique_ptr<ShmLink> link(int side, std::size_t capacity = ShmLink::kCapacity) {
    auto* control = reinterpret_cast<ShmLinkControl*>(memory.data());
    return std::make_unique<ShmLink>(
        control, side, part(side), part(1 - side),
        [this, side](std::size_t bytes) -> Result<std::uint64_t> {
          allocated[side] += bytes;
          return std::uint64_t(4096);  // not the beginning, so that a forgotten base shows
        },
        Bell(line(1 - side), bell[1 - side].get()), &gone, capacity);
  }
  BellLine* line(int side) { return reinterpret_cast<BellLine*>(memory.data() + 2048) + side; }
  std::byte* part(int side) { return memory.data() + 4096 + side * kPart; }

  Mapping memory;
  Fd bell[2] = {Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  std::atomic<bool> gone{false};
  std::size_t allocated[2] = {0, 0};
};

LinkPair make_shm_pair(std::size_t capacity) {
  auto shared = std::make_shared<Shared>();
  return {.first = shared->link(0, capacity),
          .second = shared->link(1, capacity),
          .lose_second = [shared] { shared->gone = true; },
          .keep = shared};
}

INSTANTIATE_TEST_SUITE_P(Shm, LinkConformance,
                         testing::Values(LinkMaker{"default", [] { return make_shm_pair(ShmLink::kCapacity); }},
                                         LinkMaker{"small", [] { return make_shm_pair(1000); }}),
                         [](const auto& info) { return info.param.name; });

TEST(ShmLink, TakesMemoryAtTheFirstSendOnly) {
  Shared shared;
  auto first = shared.link(0), second = shared.link(1);
  char byte = 1;
  const iovec buffer{&byte, 1};
  ASSERT_TRUE(second->try_recv({&buffer, 1}).ok());
  EXPECT_EQ(shared.allocated[0] + shared.allocated[1], 0u);
  ASSERT_TRUE(first->try_send({&buffer, 1}).ok());
  ASSERT_TRUE(first->try_send({&buffer, 1}).ok());
  EXPECT_EQ(shared.allocated[0], ShmLink::kCapacity);
  EXPECT_EQ(shared.allocated[1], 0u);
}

TEST(ShmLink, ReceivedBytesCanBeReadInPlace) {
  Shared shared;
  auto first = shared.link(0, 8), second = shared.link(1, 8);
  EXPECT_TRUE(second->front().empty());
  char bytes[] = "abcdefgh";
  const auto send = [&](std::size_t count) {
    const iovec buffer{bytes, count};
    return *first->try_send({&buffer, 1});
  };
  const auto text = [](std::span<const std::byte> come) {
    return std::string(reinterpret_cast<const char*>(come.data()), come.size());
  };
  ASSERT_EQ(send(6), 6u);
  EXPECT_EQ(text(second->front()), "abcdef");
  EXPECT_EQ(text(second->front()), "abcdef") << "they stay";
  second->drop(5);
  EXPECT_EQ(text(second->front()), "f");
  ASSERT_EQ(send(4), 4u) << "there is room again";
  EXPECT_EQ(text(second->front()), "f") << "what was seen before";
  second->drop(1);
  EXPECT_EQ(text(second->front()), "ab") << "up to the end of the ring";
  second->drop(2);
  EXPECT_EQ(text(second->front()), "cd");
  char rest[2];
  const iovec buffer{rest, 2};
  EXPECT_EQ(*second->try_recv({&buffer, 1}), 2u);
  EXPECT_TRUE(second->front().empty());
}

TEST(ShmLink, SaysSoWhenThereIsNoMemory) {
  Shared shared;
  ShmLink link(
      reinterpret_cast<ShmLinkControl*>(shared.memory.data()), 0, shared.part(0), shared.part(1),
      [](std::size_t) -> Result<std::uint64_t> { return Error{.code = Code::kLimit, .detail = "the heap is full"}; },
      Bell(shared.line(1), shared.bell[1].get()), nullptr);
  char byte = 1;
  const iovec buffer{&byte, 1};
  auto sent = link.try_send({&buffer, 1});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(to_string(sent.error()), "Limit: the heap is full");
}

TEST(ShmLink, RingsAPeerThatSleeps) {
  Shared shared;
  auto first = shared.link(0), second = shared.link(1);
  char byte = 1;
  const iovec buffer{&byte, 1};
  eventfd_t rung = 0;
  ASSERT_EQ(*first->try_send({&buffer, 1}), 1u);
  EXPECT_NE(::eventfd_read(shared.bell[1].get(), &rung), 0) << "an awake peer is not rung";
  shared.line(1)->asleep = 1;
  ASSERT_EQ(*first->try_send({&buffer, 1}), 1u);
  EXPECT_EQ(::eventfd_read(shared.bell[1].get(), &rung), 0) << "bytes have come";
  shared.line(0)->asleep = 1;
  ASSERT_EQ(*second->try_recv({&buffer, 1}), 1u);
  EXPECT_EQ(::eventfd_read(shared.bell[0].get(), &rung), 0) << "there is room again";
}

TEST(ShmLink, BelievesNoIndexBeyondTheRing) {
  Shared shared;
  auto first = shared.link(0), second = shared.link(1);
  char byte = 1;
  const iovec buffer{&byte, 1};
  ASSERT_EQ(*first->try_send({&buffer, 1}), 1u);
  reinterpret_cast<ShmLinkControl*>(shared.memory.data())->rings[0].written = std::uint64_t(1) << 40;
  std::vector<char> large(100);
  const iovec wanted{large.data(), large.size()};
  EXPECT_TRUE(second->front().empty());
  auto got = second->try_recv({&wanted, 1});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Code::kCorrupt);
}

TEST(ShmLink, BetweenTwoProcesses) {
  Shared shared;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  std::vector<std::uint32_t> numbers(1 << 20);
  const Deadline deadline = Deadline::after_seconds(60);
  if (child == 0) {  // sends 4 MiB
    auto link = shared.link(1);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::uint32_t(i * 2654435761u);
    std::size_t sent = 0;
    while (sent < numbers.size() * 4 && !deadline.expired()) {
      const iovec rest{reinterpret_cast<char*>(numbers.data()) + sent, numbers.size() * 4 - sent};
      auto taken = link->try_send({&rest, 1});
      if (!taken.ok()) ::_exit(2);
      sent += *taken;
    }
    ::_exit(deadline.expired() ? 1 : 0);
  }
  auto link = shared.link(0);
  std::size_t got = 0;
  while (got < numbers.size() * 4 && !deadline.expired()) {
    const iovec rest{reinterpret_cast<char*>(numbers.data()) + got, numbers.size() * 4 - got};
    auto came = link->try_recv({&rest, 1});
    ASSERT_TRUE(came.ok());
    got += *came;
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], std::uint32_t(i * 2654435761u));
}

}  // namespace
}  // namespace tutti::transport
