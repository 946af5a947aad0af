#pragma once
// What a rank says of its call at the head of its messages, so that ranks which make different calls find out at once.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"

namespace tutti {

// As it travels, in the byte order of the machine: the magic number tells if the two differ.
struct CallHeader {
  static constexpr std::uint32_t kMagic = 0x49545554;  // "TUTI"

  std::uint32_t magic = kMagic;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;              // kSum where the verb reduces nothing
  Algorithm algorithm = Algorithm::kDirect;  // kDirect for send and recv
  std::uint64_t sequence = 0;  // of the group; send and recv: of the messages between two ranks, in one direction
  std::uint64_t count = 0;     // elements; with splits: those for the receiver of this header, or where all ranks give
                               // the same splits their sum
  std::int32_t root = 0;       // 0 where the verb has none
  std::int32_t tag = 0;        // send and recv; where all ranks give the same splits: a digest of them
};
static_assert(sizeof(CallHeader) == 32);

// This rank's header for messages to (and from: `expected`) `peer`.
CallHeader header_of(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer);
CallHeader expected_header(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer);

// kMismatch that shows both calls, or nothing if they agree. Operation and peer's address are the caller's to add.
std::optional<Error> compare(const CallHeader& came, const CallHeader& expected, const Request& request, int peer);

// "all_reduce #42 (f32[1048576], sum)"
std::string call_text(const Request& request, std::uint64_t sequence);

}  // namespace tutti
