// A single-producer, single-consumer ring. Each side owns one index and publishes it with a release store; the other
// side reads it with an acquire load, and only when what it saw last no longer suffices: in a steady stream most calls
// touch no line of the peer's but the data. After every store of an index the peer's bell is rung, which costs a fence
// and a load unless the peer is asleep.
#include "tutti/transport/shm/shm_link.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::transport {

ShmLink::ShmLink(ShmLinkControl* control, int side, std::byte* own_base, std::byte* peer_base, Allocate allocate,
                 Bell peer_bell, const std::atomic<bool>* peer_gone, std::size_t capacity)
    : send_(&control->rings[side]),
      recv_(&control->rings[1 - side]),
      own_base_(own_base),
      peer_base_(peer_base),
      allocate_(std::move(allocate)),
      peer_bell_(peer_bell),
      peer_gone_(peer_gone),
      capacity_(std::bit_ceil(capacity)) {}

Error ShmLink::gone() const { return Error{.code = Code::kPeerLost, .detail = "has exited"}; }

Result<std::size_t> ShmLink::try_send(std::span<const iovec> buffers) {
  if (peer_gone_ && peer_gone_->load(std::memory_order_acquire)) return gone();
  std::size_t wanted = 0;
  for (const iovec& buffer : buffers) wanted += buffer.iov_len;
  if (wanted == 0) return std::size_t(0);
  if (!send_data_) {
    const std::uint64_t place = TUTTI_TRY(allocate_(capacity_));
    send_data_ = own_base_ + place;
    send_->capacity.store(capacity_, std::memory_order_relaxed);
    send_->place.store(place + 1, std::memory_order_release);
  }
  if (capacity_ - (written_ - peer_read_) < wanted) peer_read_ = send_->read.load(std::memory_order_acquire);
  const std::size_t room = capacity_ - (written_ - peer_read_);
  std::size_t left = std::min(room, wanted);
  if (left == 0) return std::size_t(0);
  const std::size_t moved = left;
  for (const iovec& buffer : buffers) {
    for (std::size_t done = 0; done < buffer.iov_len && left > 0;) {
      const std::size_t at = written_ & (capacity_ - 1),
                        bytes = std::min({buffer.iov_len - done, left, capacity_ - at});
      std::memcpy(send_data_ + at, static_cast<const std::byte*>(buffer.iov_base) + done, bytes);
      done += bytes, written_ += bytes, left -= bytes;
    }
  }
  send_->written.store(written_, std::memory_order_release);
  peer_bell_.ring();
  return moved;
}

void ShmLink::find_ring() {
  if (recv_data_) return;
  recv_data_ = peer_base_ + (recv_->place.load(std::memory_order_acquire) - 1);
  recv_capacity_ = recv_->capacity.load(std::memory_order_relaxed);
}

std::size_t ShmLink::peek(std::span<std::byte> into) {
  peer_written_ = recv_->written.load(std::memory_order_acquire);
  if (peer_written_ == read_) return 0;
  find_ring();
  const std::size_t bytes = std::min({into.size(), std::size_t(peer_written_ - read_), std::size_t(recv_capacity_)});
  for (std::size_t i = 0; i < bytes; ++i) into[i] = recv_data_[(read_ + i) & (recv_capacity_ - 1)];
  return bytes;
}

std::span<const std::byte> ShmLink::front() {
  if (peer_written_ == read_) peer_written_ = recv_->written.load(std::memory_order_acquire);
  if (peer_written_ == read_) return {};
  find_ring();
  const std::uint64_t come = peer_written_ - read_, at = read_ & (recv_capacity_ - 1);
  if (come > recv_capacity_) return {};  // try_recv() says so
  return {recv_data_ + at, std::min(come, recv_capacity_ - at)};
}

void ShmLink::drop(std::size_t bytes) {
  read_ += bytes;
  recv_->read.store(read_, std::memory_order_release);
  peer_bell_.ring();
}

Result<std::size_t> ShmLink::try_recv(std::span<const iovec> buffers) {
  std::size_t wanted = 0;
  for (const iovec& buffer : buffers) wanted += buffer.iov_len;
  if (wanted == 0) return 0;  // nobody may have written yet, and then there is no ring
  if (peer_written_ - read_ < wanted) {
    // Whether the peer is gone is asked before its index is read, so that its last bytes are not missed.
    const bool peer_gone = peer_gone_ && peer_gone_->load(std::memory_order_acquire);
    peer_written_ = recv_->written.load(std::memory_order_acquire);
    if (peer_written_ == read_) return peer_gone ? Result<std::size_t>(gone()) : std::size_t(0);
  }
  find_ring();
  if (peer_written_ - read_ > recv_capacity_) {
    return Error{.code = Code::kCorrupt, .detail = "has written more into shared memory than the ring holds"};
  }
  std::size_t left = std::min<std::size_t>(peer_written_ - read_, wanted);
  const std::size_t moved = left;
  for (const iovec& buffer : buffers) {
    for (std::size_t done = 0; done < buffer.iov_len && left > 0;) {
      const std::size_t at = read_ & (recv_capacity_ - 1),
                        bytes = std::min<std::size_t>({buffer.iov_len - done, left, recv_capacity_ - at});
      std::memcpy(static_cast<std::byte*>(buffer.iov_base) + done, recv_data_ + at, bytes);
      done += bytes, read_ += bytes, left -= bytes;
    }
  }
  recv_->read.store(read_, std::memory_order_release);
  peer_bell_.ring();
  return moved;
}

}  // namespace tutti::transport
