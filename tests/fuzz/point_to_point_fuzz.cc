// Two peers send anything to a rank that has receives posted. The first bytes say which receives; the rest is dealt out
// to the peers. A receive ends with a message that fits it, or with an error.
#include <memory>
#include <vector>

#include "tests/fuzz/served_link.h"
#include "tests/fuzz/targets.h"
#include "tutti/comm/links/point_to_point.h"

namespace tutti::fuzz {

void point_to_point(Input input) {
  struct Posted {
    std::vector<std::byte> buffer;
    std::int32_t source = -7;
    Request request;
  };
  std::vector<Posted> posted(1 + take(input) % 4);
  for (Posted& recv : posted) {
    const std::uint8_t what = take(input);
    const int from = what % 3;
    recv.request = {.kind = Kind::kRecv,
                    .dtype = DType(take(input) % (int(DType::kC128) + 1)),
                    .root = from == 0 ? kAnySource : from,
                    .tag = what >> 6,
                    .count = std::size_t(take(input) % 32)};
    recv.buffer.resize(recv.request.count * size_of(recv.request.dtype));
    recv.request.out = recv.buffer.data();
    recv.request.source = &recv.source;
  }
  const std::size_t piece = take(input);
  const std::size_t first = std::size_t(take(input)) * input.size() / 256;
  ServedLink one(take(input, first), piece), other(input, piece);
  transport::Link* const links[] = {nullptr, &one, &other};
  comm::PointToPoint all(links, [&](int rank) { return rank == 1; });
  std::vector<std::unique_ptr<comm::Operation>> operations;
  for (const Posted& recv : posted) operations.push_back(all.make_recv(recv.request, 1 + operations.size()));
  for (int turns = 0; !operations.empty(); ++turns) {
    promise(turns < 1'000'000, "a receive whose peers are gone ends");
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (!operations[i]) continue;
      const auto progress = operations[i]->step();
      if (!progress.ok()) {
        promise_sentence(progress.error());
        promise(progress.error().peer == 1 || progress.error().peer == 2, "an error names the peer");
      } else if (*progress != comm::Progress::kDone) {
        continue;
      } else {
        promise(posted[i].source == 1 || posted[i].source == 2, "a message has a sender");
      }
      operations[i].reset();
    }
    std::size_t open = 0;
    for (const auto& operation : operations) open += operation != nullptr;
    if (open == 0) return;
  }
}

}  // namespace tutti::fuzz
