#pragma once
// A Link whose peer is the fuzzer: serves its bytes in pieces, then the peer is gone. What is sent is swallowed.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/fuzz/input.h"
#include "tutti/transport/link.h"

namespace tutti::fuzz {

class ServedLink final : public transport::Link {
 public:
  // `piece`: bytes at a time, at least 1.
  ServedLink(Input bytes, std::size_t piece)
      : bytes_(bytes.begin(), bytes.end()), piece_(std::max<std::size_t>(piece, 1)) {}

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    std::size_t all = 0;
    for (const iovec& buffer : buffers) all += buffer.iov_len;
    return all;
  }
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    if (read_ == bytes_.size()) return Error{.code = Code::kPeerLost, .detail = "closed the connection"};
    const std::size_t begin = read_;
    std::size_t left = std::min(piece_, bytes_.size() - read_);
    for (const iovec& buffer : buffers) {
      const std::size_t part = std::min(left, buffer.iov_len);
      if (part > 0) std::memcpy(buffer.iov_base, bytes_.data() + read_, part);
      read_ += part, left -= part;
    }
    return read_ - begin;
  }
  std::size_t peek(std::span<std::byte> into) override {
    const std::size_t some = std::min({into.size(), piece_, bytes_.size() - read_});
    if (some > 0) std::memcpy(into.data(), bytes_.data() + read_, some);
    return some;
  }
  int poll_fd() const override { return -1; }
  std::string peer_address() const override { return "fuzzer"; }

  std::size_t read() const { return read_; }

 private:
  const std::vector<std::uint8_t> bytes_;
  const std::size_t piece_;
  std::size_t read_ = 0;
};

}  // namespace tutti::fuzz
