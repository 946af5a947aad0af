// A wire is a queue of pieces with the time at which each is due, under a mutex. The sender lays bytes on it as far as
// the wire has room; a piece occupies the wire for its overhead and its bytes over the bandwidth, beginning when the
// one before has left, and is due a latency after its own end. So a stream flows at the bandwidth, and one message
// takes overhead + bytes / bandwidth + latency.
#include "tutti/transport/sim/sim_link.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"

namespace tutti::transport {
namespace {

struct SimPiece {
  std::vector<std::byte> bytes;
  std::size_t taken = 0;
  Clock::time_point due;
};

class SimWire {
 public:
  SimWire(const SimOptions& options, std::uint64_t direction)
      : options_(options), random_(options.seed * 2 + direction) {}

  Result<std::size_t> send(std::span<const iovec> buffers) {
    MutexLock lock(mutex_);
    if (receiver_gone_) return gone();
    std::size_t sent = 0;
    for (const iovec& buffer : buffers) {
      const auto* from = static_cast<const std::byte*>(buffer.iov_base);
      for (std::size_t done = 0; done < buffer.iov_len && held_ < options_.capacity;) {
        const std::size_t bytes = std::min({next_size(), buffer.iov_len - done, options_.capacity - held_});
        lay(from + done, bytes);
        done += bytes, sent += bytes;
      }
    }
    return sent;
  }

  Result<std::size_t> receive(std::span<const iovec> buffers) {
    MutexLock lock(mutex_);
    if (receiver_gone_) return gone();
    const std::size_t got = copy(buffers, true);
    if (got == 0 && sender_gone_ && pieces_.empty()) return gone();
    return got;
  }
  std::size_t peek(std::span<std::byte> into) {
    MutexLock lock(mutex_);
    const iovec buffer{into.data(), into.size()};
    return copy({&buffer, 1}, false);
  }

  // Until the next bytes are due; nothing while none are under way.
  std::optional<Duration> until_due() {
    MutexLock lock(mutex_);
    if (pieces_.empty()) return {};
    return std::max<Duration>(pieces_.front().due - now(), std::chrono::nanoseconds(1));
  }

  void close(bool sender) {
    MutexLock lock(mutex_);
    (sender ? sender_gone_ : receiver_gone_) = true;
  }

 private:
  static Error gone() { return Error{.code = Code::kPeerLost, .detail = "left the group"}; }

  std::size_t next_size() TUTTI_REQUIRES(mutex_) {
    return std::uniform_int_distribution<std::size_t>(1, options_.largest_piece)(random_);
  }

  void lay(const std::byte* from, std::size_t bytes) TUTTI_REQUIRES(mutex_) {
    const double busy = options_.overhead + double(bytes) / options_.bandwidth;
    const double longer = 1 + options_.jitter * std::uniform_real_distribution<double>(0, 1)(random_);
    free_ = std::max(free_, now()) + from_seconds(busy);
    last_due_ = std::max(last_due_, free_ + from_seconds(options_.latency * longer));
    pieces_.push_back({.bytes = {from, from + bytes}, .due = last_due_});
    held_ += bytes;
  }

  // What is due, so far as there is room for it.
  std::size_t copy(std::span<const iovec> buffers, bool take) TUTTI_REQUIRES(mutex_) {
    const auto time = now();
    std::size_t place = 0, offset = pieces_.empty() ? 0 : pieces_.front().taken, got = 0;
    for (const iovec& buffer : buffers) {
      for (std::size_t done = 0; done < buffer.iov_len && place < pieces_.size() && pieces_[place].due <= time;) {
        const SimPiece& piece = pieces_[place];
        const std::size_t bytes = std::min(buffer.iov_len - done, piece.bytes.size() - offset);
        std::memcpy(static_cast<std::byte*>(buffer.iov_base) + done, piece.bytes.data() + offset, bytes);
        done += bytes, got += bytes, offset += bytes;
        if (offset == piece.bytes.size()) ++place, offset = 0;
      }
    }
    if (!take) return got;
    pieces_.erase(pieces_.begin(), pieces_.begin() + std::ptrdiff_t(place));
    if (!pieces_.empty()) pieces_.front().taken = offset;
    held_ -= got;
    return got;
  }

  const SimOptions options_;
  Mutex mutex_;
  std::mt19937_64 random_ TUTTI_GUARDED_BY(mutex_);
  std::deque<SimPiece> pieces_ TUTTI_GUARDED_BY(mutex_);
  std::size_t held_ TUTTI_GUARDED_BY(mutex_) = 0;  // bytes
  Clock::time_point free_ TUTTI_GUARDED_BY(mutex_){}, last_due_ TUTTI_GUARDED_BY(mutex_){};
  bool sender_gone_ TUTTI_GUARDED_BY(mutex_) = false, receiver_gone_ TUTTI_GUARDED_BY(mutex_) = false;
};

class SimLink final : public Link {
 public:
  SimLink(std::shared_ptr<SimWire> out, std::shared_ptr<SimWire> in, std::function<void()> ring_peer)
      : out_(std::move(out)), in_(std::move(in)), ring_peer_(std::move(ring_peer)) {}
  ~SimLink() override { end(); }

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    auto sent = out_->send(buffers);
    if (sent.ok() && *sent > 0) ring();
    return sent;
  }
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    auto got = in_->receive(buffers);
    if (got.ok() && *got > 0) ring();
    return got;
  }
  std::size_t peek(std::span<std::byte> into) override { return in_->peek(into); }
  void shut() override { end(); }
  int poll_fd() const override { return -1; }
  std::optional<Duration> look_again() const override { return in_->until_due(); }
  std::string peer_address() const override { return "sim"; }

 private:
  void end() {
    out_->close(true);
    in_->close(false);
    ring();
  }
  void ring() const {
    if (ring_peer_) ring_peer_();
  }

  std::shared_ptr<SimWire> out_, in_;
  std::function<void()> ring_peer_;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_sim_links(const SimOptions& options,
                                                                       std::function<void()> ring_first,
                                                                       std::function<void()> ring_second) {
  auto forth = std::make_shared<SimWire>(options, 0), back = std::make_shared<SimWire>(options, 1);
  return {std::make_unique<SimLink>(forth, back, std::move(ring_second)),
          std::make_unique<SimLink>(back, forth, std::move(ring_first))};
}

}  // namespace tutti::transport
