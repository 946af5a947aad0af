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
//   session  u64 client (client); echoed with an empty body by a server that serves
//   goodbye  no body (client): nothing of its session will be repeated
//   standby  no body (server): it does not serve; to a session, or to any call
//
// A client may have several calls open. Each call is answered by one reply or failure, unless it is cancelled first;
// each cancel by one cancelled and each progress by one missing, in the order in which they were sent. Within a session
// the ids rise, and a call that is repeated under its id is carried out once.
//
// From a primary to its standby, which identified itself in the handshake (kStandbyChannel):
//   change   u64 client, u32 number, u8 op, then as a call      to be carried out
//   answered u8 kind, u32 count, each u64 client, u32 number, then as a reply or failure: of a barrier that is over
//   forget   u64 client
//   copied   no body: all until here was a copy; from now on each entry is a change as it is made
// and in both directions
//   heartbeat u64 entries sent or carried out, i64 stamp, i64 echo of the other's stamp
//   farewell no body: the sender serves alone from now on, and the receiver must not serve
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/store/request.h"

namespace tutti::store::wire {

enum class Kind : std::uint8_t {
  kReply = 64,
  kFailure = 65,
  kMissing = 66,
  kCancelled = 67,
  kStandby = 68,
  kCancel = 96,
  kProgress = 97,
  kSession = 98,
  kGoodbye = 99,
  kChange = 112,
  kAnswered = 113,
  kForget = 114,
  kCopied = 115,
  kHeartbeat = 116,
  kFarewell = 117,
};

inline constexpr std::uint64_t kStandbyChannel = 1;  // Hello::channel

inline constexpr std::size_t kHeaderBytes = 9;
inline constexpr std::size_t kMaxFrameBytes =
    kMaxCallBytes + (std::size_t(8) << 20);  // with the sizes of a million values

struct Frame {
  std::uint32_t id = 0;
  std::uint8_t kind = 0;  // an Op or a Kind
  std::span<const std::byte> body;
};

// Between a primary and its standby (server/replication.h).
struct Heartbeat {
  std::uint64_t count = 0;  // of entries: the primary has sent, the standby has carried out
  std::int64_t stamp = 0;   // nanoseconds of the sender's clock
  std::int64_t echo = 0;    // the last stamp that the sender has received; 0: none
};

std::string header(std::uint32_t id, std::uint8_t kind, std::size_t body_bytes);
std::string body_of(const Request& request);
std::string body_of(const Reply& reply);  // of a failure if it holds an error
std::string body_of(const Missing& missing);
std::uint8_t kind_of(const Reply& reply);

// A change or an answered barrier as whole frames; the rest as bodies.
std::string frame_of_change(Origin origin, const Request& request);
std::string frame_of_answered(std::span<const Origin> origins, const Reply& reply);
std::string frame(Kind kind, std::string_view body = {});
std::string body_of_client(std::uint64_t client);
std::string body_of(const Heartbeat& heartbeat);

struct Change {
  Origin origin;
  Request request;
};
struct Answered {
  std::vector<Origin> origins;
  Reply reply;
};
Result<Change> parse_change(const Frame& frame);
Result<Answered> parse_answered(const Frame& frame);
Result<std::uint64_t> parse_client(const Frame& frame);
Result<Heartbeat> parse_heartbeat(const Frame& frame);

// kCorrupt where the bytes are not what they should be. Sizes are checked before anything is allocated for them.
Result<Request> parse_request(const Frame& frame);
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

}  // namespace tutti::store::wire
