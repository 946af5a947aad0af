// Streams of chunks that were never sent so. What is received came over some stream, and what was peeked comes next.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/fuzz/served_link.h"
#include "tests/fuzz/targets.h"
#include "tutti/transport/striped_link.h"

namespace tutti::fuzz {

void striped_link(Input input) {
  const std::size_t count = 1 + take(input) % 4, piece = take(input), share = input.size() / count;
  std::vector<std::unique_ptr<transport::Link>> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(std::make_unique<ServedLink>(take(input, share), piece));
  const auto link = transport::make_striped_link(std::move(streams));
  std::size_t received = 0;
  for (int idle = 0; idle < 8;) {
    std::array<std::byte, 40> next, part;
    const std::size_t peeked = link->peek(next);
    const iovec buffers[] = {{part.data(), 7}, {part.data() + 7, part.size() - 7}};
    const auto got = link->try_recv(buffers);
    if (!got.ok()) return promise_sentence(got.error());
    promise(std::equal(part.begin(), part.begin() + std::ptrdiff_t(std::min(peeked, *got)), next.begin()),
            "what was peeked comes next");
    idle = *got == 0 ? idle + 1 : 0;
    received += *got;
    promise(received <= share * count, "no more comes than was sent");
  }
}

}  // namespace tutti::fuzz
