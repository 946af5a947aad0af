// The bytes are cut into chunks, and a stream that has room takes the next one: a slow stream carries less, where equal
// shares would make all wait for it. A chunk opens with its place in the sequence of bytes, so the receiver takes
// chunks in order, from whichever stream has the next; what other streams bring early waits in their sockets.
//
// A message that fits one chunk goes by the first stream while that has room, and is expected there first.
#include "tutti/transport/striped_link.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tutti/base/clock.h"

namespace tutti::transport {
namespace {

constexpr std::size_t kChunk = 256 << 10;  // bytes
constexpr Duration kLastWords = std::chrono::seconds(1);

struct ChunkHeader {
  static constexpr std::uint32_t kMagic = 0x4b4e4843;  // "CHNK"
  std::uint64_t begin = 0;                             // of the chunk, in bytes since the link was made
  std::uint32_t bytes = 0;
  std::uint32_t magic = kMagic;
};
static_assert(sizeof(ChunkHeader) == 16);

// A part of what several buffers hold one after another; its first bytes, where that is many.
class Slice {
 public:
  void add(void* data, std::size_t bytes) { buffers_[count_++] = {data, bytes}; }
  bool is_full() const { return count_ == buffers_.size(); }
  operator std::span<const iovec>() const { return std::span(buffers_).first(count_); }

 private:
  std::array<iovec, 8> buffers_;
  std::size_t count_ = 0;
};
void append(Slice& part, std::span<const iovec> buffers, std::size_t offset, std::size_t bytes) {
  for (const iovec& buffer : buffers) {
    if (bytes == 0 || part.is_full()) break;
    if (offset >= buffer.iov_len) {
      offset -= buffer.iov_len;
      continue;
    }
    const std::size_t length = std::min(buffer.iov_len - offset, bytes);
    part.add(static_cast<std::byte*>(buffer.iov_base) + offset, length);
    bytes -= length;
    offset = 0;
  }
}

class StripedLink final : public Link {
 public:
  explicit StripedLink(std::vector<std::unique_ptr<Link>> streams) {
    for (auto& link : streams) streams_.push_back(Stream{.link = std::move(link)});
  }

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    std::uint64_t end = taken_;
    for (const iovec& buffer : buffers) end += buffer.iov_len;
    for (Stream& stream : streams_) {
      while (stream.is_sending || assigned_ < end) {
        if (!stream.is_sending) assign(stream, end);
        if (!TUTTI_TRY(push(stream, buffers))) break;
      }
    }
    std::uint64_t gone = assigned_;
    for (const Stream& stream : streams_)
      if (stream.is_sending) gone = std::min(gone, stream.leaving.begin + stream.payload_sent());
    const std::size_t taken = std::size_t(gone - taken_);
    taken_ = gone;
    return taken;
  }

  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    std::size_t room = 0, got = 0;
    for (const iovec& buffer : buffers) room += buffer.iov_len;
    while (got < room) {
      const auto found = find_next();
      if (!found.ok()) return got > 0 ? Result<std::size_t>(got) : found.status();
      Stream* const stream = *found;
      if (!stream) break;
      Slice part;
      append(part, buffers, got, std::min<std::size_t>(room - got, stream->coming.bytes - stream->payload_received));
      const auto came = stream->link->try_recv(part);
      if (!came.ok()) return got > 0 ? Result<std::size_t>(got) : came.status();
      if (*came == 0) break;
      got += *came;
      received_ += *came;
      stream->payload_received += *came;
      if (stream->payload_received == stream->coming.bytes) stream->begin_receiving();
    }
    return got;
  }

  std::size_t peek(std::span<std::byte> into) override {
    const auto found = find_next();
    if (!found.ok() || !*found) return 0;
    Stream& stream = **found;
    return stream.link->peek(
        into.first(std::min<std::size_t>(into.size(), stream.coming.bytes - stream.payload_received)));
  }

  void shut() override {
    for (Stream& stream : streams_) stream.link->shut();
  }

  int poll_fd() const override { return streams_.front().link->poll_fd(); }

  void add_polls(short events, std::vector<pollfd>& polls) const override {
    const Stream* const next = next_stream();
    const bool all_are_sending =
        std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.is_sending; });
    for (const Stream& stream : streams_) {
      short awaited = 0;
      if ((events & POLLOUT) && (stream.is_sending || !all_are_sending)) awaited |= POLLOUT;
      if ((events & POLLIN) && (next ? next == &stream : !stream.knows_what_comes())) awaited |= POLLIN;
      if (awaited) polls.push_back({stream.link->poll_fd(), awaited, 0});
    }
  }

  void wake_at(std::size_t bytes) override {
    const Stream* const next = next_stream();
    for (Stream& stream : streams_)
      stream.link->wake_at(&stream == next ? std::min(bytes, stream.coming.bytes - stream.payload_received) : 1);
  }

  std::optional<Duration> look_again() const override {
    std::optional<Duration> soonest;
    for (const Stream& stream : streams_)
      if (const auto due = stream.link->look_again()) soonest = std::min(soonest.value_or(*due), *due);
    return soonest;
  }

  std::string peer_address() const override { return streams_.front().link->peer_address(); }

 private:
  struct Stream {
    std::unique_ptr<Link> link;
    bool is_sending = false;
    ChunkHeader leaving{}, coming{};
    std::size_t sent = 0;             // bytes of header and chunk
    std::size_t header_received = 0;  // bytes of `coming`
    std::size_t payload_received = 0;
    Status ended{};  // nothing more comes

    std::size_t payload_sent() const { return sent - std::min(sent, sizeof leaving); }
    bool knows_what_comes() const { return header_received == sizeof coming; }
    void begin_receiving() { header_received = payload_received = 0; }
  };

  void assign(Stream& stream, std::uint64_t end) {
    stream.leaving = {.begin = assigned_, .bytes = std::uint32_t(std::min<std::uint64_t>(kChunk, end - assigned_))};
    stream.is_sending = true;
    stream.sent = 0;
    assigned_ += stream.leaving.bytes;
  }

  // Whether the chunk is through.
  Result<bool> push(Stream& stream, std::span<const iovec> buffers) {
    const std::size_t header_left = sizeof stream.leaving - std::min(stream.sent, sizeof stream.leaving);
    const std::uint64_t place = stream.leaving.begin + stream.payload_sent();
    Slice parts;
    if (header_left > 0)
      parts.add(reinterpret_cast<std::byte*>(&stream.leaving) + sizeof stream.leaving - header_left, header_left);
    append(parts, buffers, std::size_t(place - taken_), stream.leaving.bytes - stream.payload_sent());
    stream.sent += TUTTI_TRY(stream.link->try_send(parts));
    if (stream.sent < sizeof stream.leaving + stream.leaving.bytes) return false;
    stream.is_sending = false;
    return true;
  }

  const Stream* next_stream() const {
    for (const Stream& stream : streams_)
      if (stream.knows_what_comes() && stream.coming.begin + stream.payload_received == received_) return &stream;
    return nullptr;
  }

  // The stream that brings the next byte; null while none is known.
  Result<Stream*> find_next() {
    if (const Stream* next = next_stream()) return const_cast<Stream*>(next);
    const Stream* ended = nullptr;
    for (Stream& stream : streams_) {
      if (stream.knows_what_comes()) continue;
      if (TUTTI_TRY(read_header(stream)) && stream.coming.begin == received_) return &stream;
      if (!stream.ended.ok()) ended = &stream;
    }
    if (!ended) return nullptr;
    // What the peer sent last may still be on its way by another stream.
    if (ended_at_ == Clock::time_point{}) ended_at_ = now();
    const bool all = std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.ended.ok(); });
    if (!all && now() - ended_at_ < kLastWords) return nullptr;
    return ended->ended.error();
  }

  Result<bool> read_header(Stream& stream) {
    if (!stream.ended.ok()) return false;
    const iovec rest{reinterpret_cast<std::byte*>(&stream.coming) + stream.header_received,
                     sizeof stream.coming - stream.header_received};
    const auto came = stream.link->try_recv({&rest, 1});
    if (!came.ok()) {
      stream.ended = came.status();
      return false;
    }
    stream.header_received += *came;
    if (!stream.knows_what_comes()) return false;
    if (stream.coming.magic == ChunkHeader::kMagic && stream.coming.bytes > 0 && stream.coming.bytes <= kChunk &&
        stream.coming.begin >= received_)
      return true;
    return Error{.code = Code::kMismatch,
                 .detail = "sent bytes that do not begin a chunk",
                 .hint = "TUTTI_STREAMS must be the same for all ranks",
                 .address = peer_address()};
  }

  std::vector<Stream> streams_;
  std::uint64_t taken_ = 0;     // bytes that try_send() has told of
  std::uint64_t assigned_ = 0;  // bytes that streams have taken upon them
  std::uint64_t received_ = 0;
  Clock::time_point ended_at_{};
};

}  // namespace

std::unique_ptr<Link> make_striped_link(std::vector<std::unique_ptr<Link>> streams) {
  return std::make_unique<StripedLink>(std::move(streams));
}

}  // namespace tutti::transport
