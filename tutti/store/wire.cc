// Encoding is appending; decoding is a cursor that knows how much is left and compares every count and size with that
// before it believes it. The comparisons are written so that they cannot overflow: "size > left", never "position +
// size > end".
#include "tutti/store/wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace tutti::store::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr std::size_t kFirstBuffer = 4096, kKeptBuffer = std::size_t(1) << 20;

template <class T>
void put(std::string& out, T number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

void put(std::string& out, const std::vector<std::string>& strings) {
  put(out, std::uint32_t(strings.size()));
  for (const auto& text : strings) {
    put(out, std::uint32_t(text.size()));
    out += text;
  }
}

std::size_t size_of(const std::vector<std::string>& strings) {
  std::size_t size = 4;
  for (const auto& text : strings) size += 4 + text.size();
  return size;
}

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T number() {
    T value{};
    if (sizeof value > rest_.size()) {
      good_ = false;
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }

  // A count of things of at least `least` bytes each.
  std::size_t count(std::size_t least) {
    const std::size_t value = number<std::uint32_t>();
    if (value > rest_.size() / least) good_ = false;
    return good_ ? value : 0;
  }

  // A string in memory is eight times its count on the wire, so an empty one costs more than it came with: `most`.
  std::vector<std::string> strings(std::size_t most) {
    const std::size_t number = count(4);
    if (number > most) good_ = false;
    std::vector<std::string> result(good_ ? number : 0);
    for (auto& text : result) {
      const std::size_t size = count(1);
      text.assign(reinterpret_cast<const char*>(rest_.data()), size);
      rest_ = rest_.subspan(size);
    }
    return result;
  }

  // All that is left.
  std::span<const std::byte> rest() { return std::exchange(rest_, {}); }
  bool good() const { return good_; }
  bool complete() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool good_ = true;
};

Error corrupt(const char* what) { return Error{.code = Code::kCorrupt, .detail = std::string("malformed ") + what}; }

}  // namespace

std::string header(std::uint32_t id, std::uint8_t kind, std::size_t body_bytes) {
  std::string out;
  put(out, std::uint32_t(body_bytes + kHeaderBytes - 4));
  put(out, id);
  put(out, kind);
  return out;
}

std::string body_of(const Request& request) {
  std::string out;
  out.reserve(size_of(request.keys) + size_of(request.values) + 16);
  put(out, request.keys);
  put(out, request.values);
  put(out, request.number);
  put(out, request.rank);
  put(out, request.size);
  return out;
}

std::string body_of(const Reply& reply) {
  std::string out;
  if (reply.error) {
    put(out, std::uint8_t(reply.error->code));
    put(out, std::vector<std::string>{reply.error->detail, reply.error->hint});
    return out;
  }
  out.reserve(size_of(reply.values) + 9);
  put(out, std::uint8_t(reply.flag));
  put(out, reply.number);
  put(out, reply.values);
  return out;
}

std::string body_of(const Missing& missing) {
  std::string out;
  put(out, missing.keys);
  put(out, std::uint32_t(missing.ranks.size()));
  for (const int rank : missing.ranks) put(out, std::int32_t(rank));
  return out;
}

std::uint8_t kind_of(const Reply& reply) { return std::uint8_t(reply.error ? Kind::kFailure : Kind::kReply); }

Result<Request> parse_request(const Frame& frame) {
  if (frame.kind < std::uint8_t(Op::kSet) || frame.kind > std::uint8_t(Op::kGatherAll))
    return corrupt("request: no such operation");
  Cursor cursor(frame.body);
  Request request{.op = Op(frame.kind)};
  request.keys = cursor.strings(kMaxKeysPerCall);
  request.values = cursor.strings(kMaxKeysPerCall);
  request.number = cursor.number<std::int64_t>();
  request.rank = cursor.number<std::int32_t>();
  request.size = cursor.number<std::int32_t>();
  if (!cursor.complete()) return corrupt("request");
  return request;
}

Result<Reply> parse_reply(const Frame& frame) {
  Cursor cursor(frame.body);
  Reply reply;
  if (frame.kind == std::uint8_t(Kind::kFailure)) {
    const auto code = cursor.number<std::uint8_t>();
    auto words = cursor.strings(2);
    if (!cursor.complete() || words.size() != 2 || code > std::uint8_t(Code::kInternal)) return corrupt("reply");
    reply.error = Error{.code = Code(code), .detail = std::move(words[0]), .hint = std::move(words[1])};
    return reply;
  }
  reply.flag = cursor.number<std::uint8_t>() != 0;
  reply.number = cursor.number<std::int64_t>();
  reply.values = cursor.strings(kMaxRanks);
  if (frame.kind != std::uint8_t(Kind::kReply) || !cursor.complete()) return corrupt("reply");
  return reply;
}

Result<Missing> parse_missing(const Frame& frame) {
  Cursor cursor(frame.body);
  Missing missing;
  missing.keys = cursor.strings(kMaxKeysPerCall);
  missing.ranks.resize(cursor.count(4));
  for (int& rank : missing.ranks) rank = cursor.number<std::int32_t>();
  if (!cursor.complete()) return corrupt("reply");
  return missing;
}

// ---- between a primary and its standby ----

std::string frame(Kind kind, std::string_view body) {
  std::string out = header(0, std::uint8_t(kind), body.size());
  out += body;
  return out;
}

std::string frame_of_change(Origin origin, const Request& request) {
  std::string body;
  put(body, origin.client);
  put(body, origin.number);
  put(body, std::uint8_t(request.op));
  body += body_of(request);
  return frame(Kind::kChange, body);
}

std::string frame_of_answered(std::span<const Origin> origins, const Reply& reply) {
  std::string body;
  put(body, kind_of(reply));
  put(body, std::uint32_t(origins.size()));
  for (const Origin& origin : origins) {
    put(body, origin.client);
    put(body, origin.number);
  }
  body += body_of(reply);
  return frame(Kind::kAnswered, body);
}

std::string body_of_client(std::uint64_t client) {
  std::string body;
  put(body, client);
  return body;
}

std::string body_of(const Heartbeat& heartbeat) {
  std::string body;
  put(body, heartbeat.count);
  put(body, heartbeat.stamp);
  put(body, heartbeat.echo);
  return body;
}

Result<Change> parse_change(const Frame& frame) {
  Cursor cursor(frame.body);
  Change change;
  change.origin.client = cursor.number<std::uint64_t>();
  change.origin.number = cursor.number<std::uint32_t>();
  const auto op = cursor.number<std::uint8_t>();
  if (!cursor.good()) return corrupt("change");
  change.request = TUTTI_TRY(parse_request({.id = 0, .kind = op, .body = cursor.rest()}));
  return change;
}

Result<Answered> parse_answered(const Frame& frame) {
  constexpr std::size_t kOriginBytes = 12;
  Cursor cursor(frame.body);
  Answered answered;
  const auto kind = cursor.number<std::uint8_t>();
  answered.origins.resize(cursor.count(kOriginBytes));
  for (Origin& origin : answered.origins) {
    origin.client = cursor.number<std::uint64_t>();
    origin.number = cursor.number<std::uint32_t>();
  }
  if (!cursor.good()) return corrupt("answer");
  answered.reply = TUTTI_TRY(parse_reply({.id = 0, .kind = kind, .body = cursor.rest()}));
  return answered;
}

Result<std::uint64_t> parse_client(const Frame& frame) {
  Cursor cursor(frame.body);
  const auto client = cursor.number<std::uint64_t>();
  if (!cursor.complete() || client == 0) return corrupt("session");
  return client;
}

Result<Heartbeat> parse_heartbeat(const Frame& frame) {
  Cursor cursor(frame.body);
  Heartbeat heartbeat;
  heartbeat.count = cursor.number<std::uint64_t>();
  heartbeat.stamp = cursor.number<std::int64_t>();
  heartbeat.echo = cursor.number<std::int64_t>();
  if (!cursor.complete()) return corrupt("heartbeat");
  return heartbeat;
}

Result<bool> FrameReader::read(int fd) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kKeptBuffer) buffer_ = {};  // a large frame has gone by
  }
  if (begin_ > 0 && end_ == buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (end_ == buffer_.size()) buffer_.resize(std::max(kFirstBuffer, buffer_.size() * 2));
  while (true) {
    const ssize_t got = ::recv(fd, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
    if (got > 0) {
      end_ += std::size_t(got);
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    return Error{.code = Code::kPeerLost,
                 .detail = "the connection was closed",
                 .errno_value = got < 0 && errno != ECONNRESET ? errno : 0};  // not 0: given up, and not by the peer
  }
}

Result<std::optional<Frame>> FrameReader::next() {
  const std::size_t have = end_ - begin_;
  if (have < kHeaderBytes) return std::optional<Frame>();
  const std::byte* at = buffer_.data() + begin_;
  std::uint32_t length;
  std::memcpy(&length, at, sizeof length);
  if (length < kHeaderBytes - 4 || length > kMaxFrameBytes) return corrupt("frame: its length is out of bounds");
  if (have - 4 < length) return std::optional<Frame>();
  Frame frame;
  std::memcpy(&frame.id, at + 4, sizeof frame.id);
  frame.kind = std::to_integer<std::uint8_t>(at[8]);
  frame.body = std::span(at + kHeaderBytes, length + 4 - kHeaderBytes);
  begin_ += std::size_t(length) + 4;
  return std::optional<Frame>(frame);
}

}  // namespace tutti::store::wire
