#pragma once
// The description of a call that opens each rank's messages, so that ranks that make different calls detect it at once.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

// The wire format, in the byte order of the machine. The magic number detects a peer with another byte order.
struct CallHeader {
  static constexpr std::uint32_t kMagic = 0x49545554;  // "TUTI"
  static constexpr std::uint32_t kNoteMagic =
      0x4e545554;  // "TUTN": a note follows, not the elements (point_to_point.h)

  std::uint32_t magic = kMagic;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;              // kSum if the verb does not reduce
  Algorithm algorithm = Algorithm::kDirect;  // kDirect for send and recv
  std::uint64_t sequence = 0;  // of the group; for send and recv: of the messages between two ranks in one direction
  std::uint64_t count = 0;     // elements; with splits: those for the receiver of this header, or their sum if all
                               // ranks pass the same splits
  std::int32_t root = 0;       // 0 if the verb has no root
  std::int32_t tag = 0;        // for send and recv; if all ranks pass the same splits: a digest of the splits
};
static_assert(sizeof(CallHeader) == 32);

// header_of() is this rank's header for messages to `peer`. expected_header() is the header that `peer` must send.
CallHeader header_of(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer);
CallHeader expected_header(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer);

// Returns kMismatch with a text that shows both calls, or nothing if they agree. The caller adds operation and address.
std::optional<Error> compare(const CallHeader& came, const CallHeader& expected, const Request& request, int peer);

// "all_reduce #42 (f32[1048576], sum)"
std::string call_text(const Request& request, std::uint64_t sequence);

}  // namespace tutti::comm
