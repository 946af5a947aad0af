// What a peer on this host hands over: descriptors of several kinds with a greeting that says how much they reserve,
// and the place of a block in it. What is mapped can be read, so far as there are pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tutti/comm/shared_memory/group_memory.h"
#include "tutti/transport/shm/arena.h"
#include "tutti/transport/socket.h"

namespace tutti::fuzz {
namespace {

Fd some_descriptor(std::uint8_t kind) {
  Fd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  promise(bool(fd), "a descriptor can be made");
  constexpr off_t kSizes[] = {0, 1, 4096, 3 * 4096 + 5};
  promise(::ftruncate(fd.get(), kSizes[kind % 4]) == 0, "it can have a size");
  if (kind & 4) (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  if (kind & 8) return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  return fd;
}

}  // namespace

void shm(Input input) {
  constexpr std::size_t kReserved = 1 << 20, kBlock = 4096;
  const std::uint8_t count = take(input) % 5, kind = take(input);
  if (const auto place = comm::parse_block_place(text_of(input), kBlock, kReserved))
    promise(*place + kBlock <= kReserved && *place % 64 == 0, "a block lies in its arena");

  int pair[2];
  promise(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "a socket can be made");
  Fd peer(pair[0]);
  const Fd here(pair[1]);
  std::vector<Fd> owned;
  std::vector<int> sent;
  for (int i = 0; i < count; ++i) {
    owned.push_back(some_descriptor(kind));
    sent.push_back(owned.back().get());
  }
  const auto deadline = Deadline::after_seconds(10);
  if (!input.empty())
    promise(transport::send_fds(peer.get(), sent, std::as_bytes(input), deadline).ok(), "it can be sent");
  peer.reset();
  auto received = transport::recv_fds(here.get(), 2, sizeof(std::uint64_t), deadline);
  if (!received.ok()) return promise_sentence(received.error());
  promise(received->fds.size() <= 2 && received->bytes.size() == sizeof(std::uint64_t),
          "no more is taken than was asked");
  if (received->fds.empty()) return;
  std::uint64_t reserved = 0;
  std::memcpy(&reserved, received->bytes.data(), sizeof reserved);
  const auto arena = transport::Arena::map(std::move(received->fds[0]), reserved, 1);
  if (!arena.ok()) return promise_sentence(arena.error());
  promise(arena->reserved() >= reserved && *static_cast<volatile std::byte*>(arena->base()) == std::byte(0),
          "what is mapped can be read");
}

}  // namespace tutti::fuzz
