#include "tests/fakes/cuda/nccl_wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace fake_nccl {

constexpr std::size_t kRing = 64 << 10;
constexpr int kMostRanks = 64;

struct Wire::Ring {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::byte bytes[kRing];
};

struct Wire::Header {
  std::atomic<int> open, here;
  std::atomic<int> devices[kMostRanks];  // plus one
};

ncclUniqueId Wire::make_id() {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/fake-nccl-XXXXXX";
  ncclUniqueId id{};
  if (path.size() >= sizeof id.internal) std::abort();
  const int fd = ::mkstemp(path.data());
  if (fd < 0) std::abort();
  ::close(fd);
  std::memcpy(id.internal, path.data(), path.size());
  return id;
}

std::size_t Wire::bytes() const { return 4096 + sizeof(Ring) * std::size_t(size_) * std::size_t(size_); }

Wire::Wire(const ncclUniqueId& id, int rank, int size) : rank_(rank), size_(size), path_(id.internal) {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, off_t(bytes())) != 0) std::abort();
  void* const at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) std::abort();
  ::close(fd);
  base_ = static_cast<std::byte*>(at);
  reinterpret_cast<Header*>(base_)->open.fetch_add(1);
}
Wire::~Wire() { ::munmap(base_, bytes()); }

Wire::Ring& Wire::ring(int from, int to) const { return reinterpret_cast<Ring*>(base_ + 4096)[from * size_ + to]; }

void Wire::join(int device) {
  auto* const header = reinterpret_cast<Header*>(base_);
  header->devices[rank_].store(device + 1);
  header->here.fetch_add(1);
}
bool Wire::is_complete() const { return reinterpret_cast<Header*>(base_)->here.load() == size_; }
bool Wire::is_open_everywhere() const { return reinterpret_cast<Header*>(base_)->open.load() == size_; }
bool Wire::shares_a_gpu() const {
  const auto* const devices = reinterpret_cast<Header*>(base_)->devices;
  for (int a = 0; a < size_; ++a)
    for (int b = 0; b < a; ++b)
      if (devices[a].load() == devices[b].load()) return true;
  return false;
}
void Wire::unlink() const { ::unlink(path_.c_str()); }

bool Wire::exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs, const std::atomic<bool>& stop) {
  const auto first_of_its_peer = [](const std::vector<Transfer>& all, std::size_t i) {
    return std::none_of(all.begin(), all.begin() + std::ptrdiff_t(i),
                        [&](const Transfer& t) { return t.peer == all[i].peer && t.bytes > 0; });
  };
  for (int idle = 0;;) {
    bool moved = false, left = false;
    for (std::size_t i = 0; i < sends.size(); ++i) {
      Transfer& t = sends[i];
      if (t.bytes == 0) continue;
      left = true;
      if (!first_of_its_peer(sends, i)) continue;
      Ring& to = ring(rank_, t.peer);
      const std::uint64_t written = to.written.load(std::memory_order_relaxed);
      const std::size_t at = written % kRing;
      const std::size_t n =
          std::min({t.bytes, kRing - std::size_t(written - to.read.load(std::memory_order_acquire)), kRing - at});
      if (n == 0) continue;
      std::memcpy(to.bytes + at, t.data, n);
      to.written.store(written + n, std::memory_order_release);
      t.data += n, t.bytes -= n, moved = true;
    }
    for (std::size_t i = 0; i < recvs.size(); ++i) {
      Transfer& t = recvs[i];
      if (t.bytes == 0) continue;
      left = true;
      if (!first_of_its_peer(recvs, i)) continue;
      Ring& from = ring(t.peer, rank_);
      const std::uint64_t read = from.read.load(std::memory_order_relaxed);
      const std::size_t at = read % kRing;
      const std::size_t n =
          std::min({t.bytes, std::size_t(from.written.load(std::memory_order_acquire) - read), kRing - at});
      if (n == 0) continue;
      std::memcpy(t.data, from.bytes + at, n);
      from.read.store(read + n, std::memory_order_release);
      t.data += n, t.bytes -= n, moved = true;
    }
    if (!left) return true;
    if (stop.load()) return false;
    if (moved)
      idle = 0;
    else if (++idle > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      std::this_thread::yield();
  }
}

}  // namespace fake_nccl
