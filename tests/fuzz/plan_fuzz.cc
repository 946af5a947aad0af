// A rank in a collective whose peers are the fuzzer. The first bytes say which call; then the rest is dealt out to the
// peers, each of which may begin with a right header. Whatever comes, the call ends, and an error names a peer.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/fuzz/served_link.h"
#include "tests/fuzz/targets.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/executor.h"
#include "tutti/comm/links/select.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/validate.h"

namespace tutti::fuzz {

void plan(Input input) {
  const int size = 2 + take(input) % 3, rank = take(input) % size;
  Request request{.kind = Kind(take(input) % int(Kind::kSend)),
                  .dtype = DType(take(input) % (int(DType::kC128) + 1)),
                  .op = kReduceOps[take(input) % std::size(kReduceOps)],
                  .root = take(input) % size,
                  .count = std::size_t(take(input) % 64)};
  const auto algorithm = comm::Algorithm(take(input) % (int(comm::kLastAlgorithm) + 1));
  const bool right_headers = take(input) % 2;
  const std::size_t piece = take(input);
  if (!comm::implements(algorithm, request.kind)) return;

  std::vector<std::size_t> splits(std::size_t(size), request.count % 7);
  splits[0] = request.count;
  if (request.kind == Kind::kGatherV || request.kind == Kind::kAllGatherV) request.out_splits = splits;
  if (request.kind == Kind::kScatterV || request.kind == Kind::kReduceScatterV) request.in_splits = splits;
  if (request.kind == Kind::kGatherV || request.kind == Kind::kScatterV) request.count = splits[std::size_t(rank)];
  const auto extent = comm::extent_of(request, rank, size);
  promise(extent.has_value(), "a small call has a size");
  std::vector<std::byte> in(extent->in * size_of(request.dtype)), out(extent->out * size_of(request.dtype));
  request.in = in.data();
  request.out = out.data();
  if (!comm::validate(request, rank, size).ok()) return;

  comm::Shape shape = comm::shape_of(request, rank, size, 64);
  const comm::Hosts hosts(std::vector<int>(std::size_t(size), 0));
  shape.hosts = &hosts;
  auto made = comm::make_plan(algorithm, request.kind, shape);
  if (!made.ok()) return promise_sentence(made.error());

  std::vector<std::unique_ptr<ServedLink>> served;
  std::vector<transport::Link*> links;
  const std::size_t share = input.size() / std::size_t(size);
  for (int peer = 0; peer < size; ++peer) {
    std::vector<std::uint8_t> bytes;
    if (right_headers) {
      const comm::CallHeader header = comm::expected_header(request, algorithm, 1, peer);
      bytes.resize(sizeof header);
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    const Input rest = take(input, share);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    served.push_back(std::make_unique<ServedLink>(bytes, piece));
    links.push_back(peer == rank ? nullptr : served.back().get());
  }
  comm::PlanMemory memory;
  const auto operation = comm::make_plan_operation(
      comm::wire_dtype(request), std::make_shared<const comm::Plan>(*std::move(made)), links, rank, size, memory);
  operation->begin(request, 1);
  for (int turns = 0;; ++turns) {
    promise(turns < 1'000'000, "a call whose peers are gone ends");
    const auto progress = operation->step();
    if (!progress.ok()) {
      promise_sentence(progress.error());
      promise(progress.error().peer >= 0 && progress.error().peer != rank, "an error names the peer");
      return;
    }
    if (*progress == comm::Progress::kDone) return;
  }
}

}  // namespace tutti::fuzz
