// A header of a peer, and one of this rank's call: first who calls what, then what came. Only the very same header
// passes.
#include <cstring>

#include "tests/fuzz/targets.h"
#include "tutti/comm/links/call_header.h"

namespace tutti::fuzz {

void call_header(Input input) {
  const Request request{.kind = Kind(take(input) % (int(Kind::kRecv) + 1)),
                        .dtype = DType(take(input) % (int(DType::kC128) + 1)),
                        .op = kReduceOps[take(input) % std::size(kReduceOps)],
                        .root = take(input) % 2,
                        .count = take(input)};
  const std::size_t splits[] = {1, 2};
  Request uneven = request;
  if (is_uneven(request.kind)) uneven.in_splits = uneven.out_splits = splits;
  const auto algorithm = comm::Algorithm(take(input) % (int(comm::kLastAlgorithm) + 1));
  const comm::CallHeader expected = comm::expected_header(uneven, algorithm, take(input), 1);
  comm::CallHeader came;
  const Input bytes = take(input, sizeof came);
  if (!bytes.empty()) std::memcpy(static_cast<void*>(&came), bytes.data(), bytes.size());
  const auto mismatch = compare(came, expected, uneven, 1);
  promise(mismatch.has_value() == (std::memcmp(&came, &expected, sizeof came) != 0), "only the same call passes");
  if (mismatch) promise_sentence(*mismatch);
  promise(!compare(expected, expected, uneven, 1), "the same call passes");
}

}  // namespace tutti::fuzz
