#pragma once
// A Link between two processes that share memory: a ring of bytes each way. The sender's memory holds the ring, so a
// rank that never sends costs nothing: it is allocated at the first send, and its place published in the control block.
#include <atomic>
#include <cstdint>
#include <functional>

#include "tutti/transport/bell.h"
#include "tutti/transport/link.h"

namespace tutti::transport {

// In memory that both map; zero when the link is made. Indices count bytes since the beginning and never wrap. Each
// index has a cache line pair of its own (the prefetcher fetches lines in pairs).
struct ShmRing {
  alignas(128) std::atomic<std::uint64_t> written{0};  // by the sender
  std::atomic<std::uint64_t> place{0};              // offset of the ring in the sender's memory, plus one; 0: none yet
  std::atomic<std::uint64_t> capacity{0};           // bytes, a power of two; valid once `place` is
  alignas(128) std::atomic<std::uint64_t> read{0};  // by the receiver
  std::atomic<std::uint64_t> word{0};               // Link::word(): by both
};
struct ShmLinkControl {
  ShmRing rings[2];  // rings[side] carries what `side` sends
};

// Threads: one at a time on each side.
class ShmLink final : public Link {
 public:
  // Memory for a ring: returns the offset from own_base of `bytes` bytes that the peer can read; 64-byte aligned.
  using Allocate = std::function<Result<std::uint64_t>(std::size_t bytes)>;
  static constexpr std::size_t kCapacity = 256 << 10;

  // `side` is 0 for the lower rank, 1 for the other. own_base and peer_base: where this process sees the memory in
  // which the offsets of its own and of the peer's ring count. peer_gone: set when the peer's end is known; may be
  // null. All but `peer_bell` are borrowed. The ring's memory is never freed here: it belongs to its allocator.
  ShmLink(ShmLinkControl* control, int side, std::byte* own_base, std::byte* peer_base, Allocate allocate,
          Bell peer_bell, const std::atomic<bool>* peer_gone, std::size_t capacity = kCapacity);

  Result<std::size_t> try_send(std::span<const iovec> buffers) override;
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override;
  std::size_t peek(std::span<std::byte> into) override;
  std::span<const std::byte> front() override;
  void drop(std::size_t bytes) override;
  std::atomic<std::uint64_t>* word(WordOf which) override {
    return which == WordOf::kSent ? &send_->word : &recv_->word;
  }
  void wake_peer() override { peer_bell_.ring(); }
  int poll_fd() const override { return -1; }
  std::string peer_address() const override { return "shm"; }

 private:
  Error gone() const;
  void find_ring();  // of the peer, once it has written

  ShmRing* send_;
  ShmRing* recv_;
  std::byte* own_base_;
  std::byte* peer_base_;
  Allocate allocate_;
  Bell peer_bell_;
  const std::atomic<bool>* peer_gone_;
  std::size_t capacity_;
  std::byte* send_data_ = nullptr;  // null until the first send
  const std::byte* recv_data_ = nullptr;
  std::uint64_t recv_capacity_ = 0;
  std::uint64_t written_ = 0, read_ = 0;            // own indices
  std::uint64_t peer_read_ = 0, peer_written_ = 0;  // the peer's, as last seen
};

}  // namespace tutti::transport
