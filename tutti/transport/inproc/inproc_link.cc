// Two pipes, one each way, shared by the two ends. A pipe is a ring of bytes under a mutex: simple, and visible to
// TSan. An end that dies closes both of its pipes; what it had sent can still be read.
#include "tutti/transport/inproc/inproc_link.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/mutex.h"

namespace tutti::transport {
namespace {

struct Pipe {
  explicit Pipe(std::size_t capacity) : bytes(capacity) {}
  Mutex mutex;
  std::vector<std::byte> bytes TUTTI_GUARDED_BY(mutex);
  std::uint64_t written TUTTI_GUARDED_BY(mutex) = 0;  // since the beginning
  std::uint64_t read TUTTI_GUARDED_BY(mutex) = 0;     // likewise
  bool closed TUTTI_GUARDED_BY(mutex) = false;        // one of the two ends is gone
};

class InprocLink final : public Link {
 public:
  InprocLink(std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in, Ring ring_peer)
      : out_(std::move(out)), in_(std::move(in)), ring_peer_(std::move(ring_peer)) {}

  ~InprocLink() override {
    for (Pipe* pipe : {out_.get(), in_.get()}) {
      MutexLock lock(pipe->mutex);
      pipe->closed = true;
    }
    ring();
  }

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    std::size_t moved = 0;
    {
      MutexLock lock(out_->mutex);
      if (out_->closed) return gone();
      moved = copy(*out_, out_->written, out_->bytes.size() - (out_->written - out_->read), buffers,
                   [](std::byte* ring, std::byte* user, std::size_t bytes) { std::memcpy(ring, user, bytes); });
    }
    if (moved > 0) ring();
    return moved;
  }

  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    std::size_t moved = 0;
    {
      MutexLock lock(in_->mutex);
      if (in_->closed && in_->written == in_->read) return gone();
      moved = copy(*in_, in_->read, in_->written - in_->read, buffers,
                   [](std::byte* ring, std::byte* user, std::size_t bytes) { std::memcpy(user, ring, bytes); });
    }
    if (moved > 0) ring();
    return moved;
  }

  std::size_t peek(std::span<std::byte> into) override {
    MutexLock lock(in_->mutex);
    const iovec buffer{into.data(), into.size()};
    std::uint64_t index = in_->read;
    return copy(*in_, index, in_->written - in_->read, {&buffer, 1},
                [](std::byte* ring, std::byte* user, std::size_t bytes) { std::memcpy(user, ring, bytes); });
  }

  int poll_fd() const override { return -1; }
  std::string peer_address() const override { return "inproc"; }

 private:
  // Moves up to `limit` bytes at `index`, and the index with them.
  template <class Move>
  static std::size_t copy(Pipe& pipe, std::uint64_t& index, std::size_t limit, std::span<const iovec> buffers,
                          Move move) TUTTI_REQUIRES(pipe.mutex) {
    const std::size_t capacity = pipe.bytes.size(), whole = limit;
    for (const iovec& buffer : buffers) {
      for (std::size_t done = 0; done < buffer.iov_len && limit > 0;) {
        const std::size_t at = index % capacity, bytes = std::min({buffer.iov_len - done, limit, capacity - at});
        move(pipe.bytes.data() + at, static_cast<std::byte*>(buffer.iov_base) + done, bytes);
        done += bytes, index += bytes, limit -= bytes;
      }
    }
    return whole - limit;
  }

  static Error gone() { return Error{.code = Code::kPeerLost, .detail = "left the group"}; }
  void ring() const {
    if (ring_peer_) ring_peer_();
  }

  std::shared_ptr<Pipe> out_, in_;
  Ring ring_peer_;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_links(Ring ring_first, Ring ring_second,
                                                                          std::size_t capacity) {
  auto forth = std::make_shared<Pipe>(capacity), back = std::make_shared<Pipe>(capacity);
  return {std::make_unique<InprocLink>(forth, back, std::move(ring_second)),
          std::make_unique<InprocLink>(back, forth, std::move(ring_first))};
}

std::vector<std::vector<std::unique_ptr<Link>>> make_inproc_mesh(int size, std::function<void(int rank)> ring,
                                                                 std::size_t capacity) {
  std::vector<std::vector<std::unique_ptr<Link>>> mesh(size);
  for (auto& row : mesh) row.resize(size);
  const auto bell_of = [&](int rank) { return ring ? Ring([ring, rank] { ring(rank); }) : Ring(); };
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b)
      std::tie(mesh[a][b], mesh[b][a]) = make_inproc_links(bell_of(a), bell_of(b), capacity);
  }
  return mesh;
}

}  // namespace tutti::transport
