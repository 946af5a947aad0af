#pragma once
// Frames between a TcpStore and its server, after the handshake. All numbers are little-endian.
//
//   frame    u32 bytes that follow | u32 id of the call | u8 kind | body
//   strings  u32 count, then each: u32 size, bytes
//   call     strings keys, strings values, i64 number, i32 rank, i32 size      kind: the Op
//   cancel, progress (client)   no body; id: of the call that waits
//   reply    u8 flag, i64 number, strings values
//   failure  u8 code, strings: detail, hint
//   missing, cancelled (server) strings keys, u32 count and i32 each: ranks; answers to progress and cancel
//
// A client may have several calls open. Each call is answered by one reply or failure, unless it is cancelled first;
// each cancel by one cancelled and each progress by one missing, in the order in which they were sent.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/store/request.h"

namespace tutti::wire {

enum class Kind : std::uint8_t {
  kReply = 64,
  kFailure = 65,
  kMissing = 66,
  kCancelled = 67,
  kCancel = 96,
  kProgress = 97
};

inline constexpr std::size_t kHeaderBytes = 9;
inline constexpr std::size_t kMaxFrameBytes =
    kMaxCallBytes + (std::size_t(8) << 20);  // with the sizes of a million values

struct Frame {
  std::uint32_t id = 0;
  std::uint8_t kind = 0;  // an Op or a Kind
  std::span<const std::byte> body;
};

std::string header(std::uint32_t id, std::uint8_t kind, std::size_t body_bytes);
std::string body_of(const StoreRequest& request);
std::string body_of(const Reply& reply);  // of a failure if it holds an error
std::string body_of(const Missing& missing);
std::uint8_t kind_of(const Reply& reply);

// kCorrupt where the bytes are not what they should be. Sizes are checked before anything is allocated for them.
Result<StoreRequest> parse_request(const Frame& frame);
Result<Reply> parse_reply(const Frame& frame);
Result<Missing> parse_missing(const Frame& frame);

// Collects what a socket brings and cuts it into frames. Memory grows with what has come, not with what was announced.
class FrameReader {
 public:
  // Reads what is there now; false if that is nothing. kPeerLost at the end of the stream.
  Result<bool> read(int fd);
  // The next whole frame, valid until the next read(); none: more must come. kCorrupt for a frame beyond the limit.
  Result<std::optional<Frame>> next();

 private:
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what is read and not yet taken
};

}  // namespace tutti::wire
