// Peer: an all_reduce and a broadcast between two hosts by the socket calls alone: what a call costs when everything
// around send() and recv() is taken away. By the method of `tutti bench` (docs/reference/benchmarks.md), with the keys
// of its --json.
//
//   RANK=R WORLD_SIZE=2|4 MASTER_ADDR=A MASTER_PORT=P peer_bare_wire [--rounds R] [--warm-up W] OPERATION:BYTES...
// with the operations all_reduce and, on two ranks, broadcast.
//
// Half of the ranks are on each host; each has a connection with its twin there.
//
// all_reduce: short vectors are exchanged whole. Of a long one each of two twins adds up its half: the other half
// leaves in chunks, and what has been added goes back between them, two chunks behind, so that both directions are
// always full. Two ranks of a host first add up in memory that they share, a half each, and then each has a half to
// carry; of a short vector one carries the sum of both.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kChunk = std::size_t(256) << 10, kBehind = 2, kShort = 64 << 10;
constexpr int kConnectTries = 500;  // of 20 ms

struct Item {
  bool is_broadcast;
  std::size_t bytes;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const char* what) { std::perror(what), std::exit(1); }

// A connection takes cubic, where the system has it, before it stands: one that began under bbr stays paced.
int new_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (fd < 0) die("peer_bare_wire: socket");
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return fd;
}

int meet(bool listens, const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) die("peer_bare_wire: MASTER_ADDR");
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  if (listens) {
    const int listener = new_socket();
    if (::bind(listener, where, sizeof address) != 0 || ::listen(listener, 1) != 0) die("peer_bare_wire: bind");
    const int fd = ::accept(listener, nullptr, nullptr), one = 1;
    if (fd < 0) die("peer_bare_wire: accept");
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::close(listener);
    return fd;
  }
  for (int tries = 0; tries < kConnectTries; ++tries) {
    const int fd = new_socket();
    if (::connect(fd, where, sizeof address) == 0) return fd;
    ::close(fd);
    ::usleep(20'000);
  }
  die("peer_bare_wire: connect");
}

// What two ranks of a host share: how often each came to a meeting, a short vector and its sum, two long ones.
struct alignas(128) Count {
  std::atomic<std::uint64_t> value;
};
struct Shared {
  Count arrived[2], posted, summed;
  alignas(128) float vector[kShort / sizeof(float)], sum[kShort / sizeof(float)];
  float* long_vector(int local, std::size_t most) {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(this + 1) + std::size_t(local) * most);
  }
};

Shared* share(int host, int local, std::size_t most) {
  // The ranks of a run have one parent.
  const std::string name = "/peer_bare_wire-" + std::to_string(::getppid()) + "-" + std::to_string(host);
  const std::size_t bytes = sizeof(Shared) + 2 * most;
  int fd = -1;
  if (local == 0) {
    fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ::ftruncate(fd, off_t(bytes)) != 0) die("peer_bare_wire: shm_open");
  } else {
    struct stat status = {};
    for (int tries = 0; tries < kConnectTries && std::size_t(status.st_size) < bytes; ++tries) {
      if (tries > 0) ::usleep(20'000);
      if (fd < 0) fd = ::shm_open(name.c_str(), O_RDWR, 0);
      if (fd >= 0) (void)::fstat(fd, &status);
    }
    if (std::size_t(status.st_size) < bytes) die("peer_bare_wire: shm_open");
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) die("peer_bare_wire: mmap");
  ::close(fd);
  auto* const shared = static_cast<Shared*>(memory);
  shared->arrived[local].value = 1;
  while (shared->arrived[1 - local].value == 0) ::sched_yield();
  if (local == 0) ::shm_unlink(name.c_str());
  return shared;
}

class Rank {
 public:
  // `most`: bytes of the longest vector.
  Rank(int rank, int ranks, int fd, std::size_t most)
      : host_(rank * 2 / ranks),
        local_(rank % (ranks / 2)),
        ranks_(ranks),
        fd_(fd),
        scratch_(std::max(kChunk, kShort)) {
    if (ranks == 4) {
      shared_ = share(host_, local_, most);
      vector_ = shared_->long_vector(local_, most);
      other_ = shared_->long_vector(1 - local_, most);
      meetings_ = 1;
    } else {
      own_.assign(most / sizeof(float), 0.f);
      vector_ = own_.data();
    }
    std::memset(static_cast<void*>(vector_), 0, most);
  }

  void measure(const Item& item, int rounds, int warm_up) {
    const std::size_t bytes = item.bytes, count = bytes / sizeof(float);
    const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= (std::size_t(4) << 20) ? 10 : 2;
    std::vector<double> seconds;
    for (int round = -warm_up; round < rounds; ++round) {
      all_meet();
      const double begin = now();
      for (int i = 0; i < calls; ++i)
        if (item.is_broadcast)
          broadcast(bytes);
        else if (ranks_ == 4)
          all_reduce_of_four(count);
        else
          all_reduce_of_twins(vector_, count);
      all_meet();
      if (round >= 0) seconds.push_back((now() - begin) / calls);
    }
    std::sort(seconds.begin(), seconds.end());
    if (host_ != 0 || local_ != 0) return;
    std::printf("{\"peer\":\"bare_wire\",\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n",
                item.is_broadcast ? "broadcast" : "all_reduce", ranks_, bytes, seconds[seconds.size() / 2] * 1e6,
                seconds[0] * 1e6);
    std::fflush(stdout);
  }

 private:
  void all_meet() {
    float meeting = 0;
    exchange(&meeting, sizeof meeting);
    if (shared_) meet_on_host();
  }
  void meet_on_host() {
    shared_->arrived[local_].value.store(++meetings_, std::memory_order_release);
    wait_for(shared_->arrived[1 - local_], meetings_);
  }
  static void wait_for(const Count& count, std::uint64_t wanted) {
    while (count.value.load(std::memory_order_acquire) < wanted) ::sched_yield();
  }

  void all_reduce_of_twins(float* vector, std::size_t count) {
    if (count * sizeof(float) <= kShort)
      exchange(vector, count * sizeof(float));
    else
      halves(vector, count);
  }
  void all_reduce_of_four(std::size_t count) {
    if (count * sizeof(float) <= kShort) return short_of_four(count);
    const std::size_t begin = local_ * (count / 2), length = local_ ? count - begin : count / 2;
    meet_on_host();
    add(vector_ + begin, other_ + begin, length);
    all_reduce_of_twins(vector_ + begin, length);
    std::memcpy(other_ + begin, vector_ + begin, length * sizeof(float));
    meet_on_host();
  }
  // One vector and one sum are enough: who posts its next has read the last sum.
  void short_of_four(std::size_t count) {
    const std::size_t bytes = count * sizeof(float);
    ++calls_;
    if (local_ == 1) {
      std::memcpy(shared_->vector, vector_, bytes);
      shared_->posted.value.store(calls_, std::memory_order_release);
      wait_for(shared_->summed, calls_);
      std::memcpy(vector_, shared_->sum, bytes);
      return;
    }
    wait_for(shared_->posted, calls_);
    add(vector_, shared_->vector, count);
    exchange(vector_, bytes);
    std::memcpy(shared_->sum, vector_, bytes);
    shared_->summed.value.store(calls_, std::memory_order_release);
  }

  void broadcast(std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      char* const piece = reinterpret_cast<char*>(vector_) + done;
      const std::size_t length = std::min(kChunk, bytes - done);
      done += host_ == 0 ? send_some(piece, length) : receive_some(piece, length);
    }
  }

  // What of it went now. Who finds nothing to do lets another rank of this core go on.
  std::size_t moved(ssize_t n, const char* what) {
    if (n > 0) return std::size_t(n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) die(what);
    if (shared_) ::sched_yield();
    return 0;
  }
  std::size_t send_some(const void* from, std::size_t bytes) {
    return moved(::send(fd_, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), "peer_bare_wire: send");
  }
  std::size_t receive_some(void* to, std::size_t bytes) {
    return moved(::recv(fd_, to, bytes, MSG_DONTWAIT), "peer_bare_wire: recv");
  }
  void add(float* sums, const float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
  }

  void exchange(float* vector, std::size_t bytes) {
    std::size_t sent = 0, received = 0;
    while (sent < bytes || received < bytes) {
      if (sent < bytes) sent += send_some(reinterpret_cast<char*>(vector) + sent, bytes - sent);
      if (sent == bytes) received += receive_some(scratch_.data() + received, bytes - received);
    }
    add(vector, reinterpret_cast<const float*>(scratch_.data()), bytes / sizeof(float));
  }

  // The n-th message of a direction: chunk k as it was, or, from the third on in turn, chunk k added up.
  struct Message {
    std::size_t chunk;
    bool is_sum;
  };
  static Message message(std::size_t n, std::size_t chunks) {
    const std::size_t ahead = std::min(kBehind, chunks), pairs = chunks - ahead;
    if (n < ahead) return {n, false};
    if (n < ahead + 2 * pairs)
      return {(n - ahead) % 2 == 0 ? (n - ahead) / 2 : ahead + (n - ahead) / 2, (n - ahead) % 2 == 0};
    return {n - ahead - pairs, true};
  }

  void halves(float* vector, std::size_t count) {
    const std::size_t half = count / 2, step = kChunk / sizeof(float), chunks = (half + step - 1) / step;
    float *const mine = vector + std::size_t(host_) * half, *const others = vector + std::size_t(1 - host_) * half;
    std::size_t out = 0, out_done = 0, in = 0, in_done = 0, added = 0;
    while (out < 2 * chunks || in < 2 * chunks) {
      if (out < 2 * chunks) {
        const Message m = message(out, chunks);
        if (!m.is_sum || m.chunk < added) {
          const std::size_t bytes = std::min(step, half - m.chunk * step) * sizeof(float);
          const char* const from = reinterpret_cast<char*>((m.is_sum ? mine : others) + m.chunk * step);
          out_done += send_some(from + out_done, bytes - out_done);
          if (out_done == bytes) ++out, out_done = 0;
        }
      }
      if (in < 2 * chunks) {
        const Message m = message(in, chunks);
        const std::size_t n = std::min(step, half - m.chunk * step), bytes = n * sizeof(float);
        char* const to = m.is_sum ? reinterpret_cast<char*>(others + m.chunk * step) : scratch_.data();
        in_done += receive_some(to + in_done, bytes - in_done);
        if (in_done < bytes) continue;
        ++in, in_done = 0;
        if (!m.is_sum) add(mine + m.chunk * step, reinterpret_cast<const float*>(scratch_.data()), n), ++added;
      }
    }
  }

  const int host_, local_, ranks_, fd_;
  std::vector<char> scratch_;
  std::vector<float> own_;
  float *vector_ = nullptr, *other_ = nullptr;  // this rank's, and that of the other rank on this host
  Shared* shared_ = nullptr;                    // with the other rank, where there is one
  std::uint64_t meetings_ = 0, calls_ = 0;
};

int usage() {
  std::fprintf(stderr,
               "usage: RANK=R WORLD_SIZE=2|4 MASTER_ADDR=A MASTER_PORT=P peer_bare_wire [--rounds R] [--warm-up W] "
               "all_reduce:BYTES|broadcast:BYTES...\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const char *const rank_word = std::getenv("RANK"), *const ranks_word = std::getenv("WORLD_SIZE"),
                    *const host = std::getenv("MASTER_ADDR"), *const port = std::getenv("MASTER_PORT");
  if (!rank_word || !ranks_word || !host || !port) return usage();
  const int rank = std::atoi(rank_word), ranks = std::atoi(ranks_word);
  int rounds = 7, warm_up = 1;
  std::size_t most = 0;
  std::vector<Item> items;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rounds" && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (word == "--warm-up" && i + 1 < argc)
      warm_up = std::atoi(argv[++i]);
    else if (word.rfind("all_reduce:", 0) == 0)
      items.push_back({false, std::stoull(word.substr(11))});
    else if (word.rfind("broadcast:", 0) == 0 && ranks == 2)
      items.push_back({true, std::stoull(word.substr(10))});
    else
      return usage();
    if (!items.empty()) most = std::max(most, items.back().bytes);
  }
  if ((ranks != 2 && ranks != 4) || rank < 0 || rank >= ranks || rounds < 1 || items.empty()) return usage();
  const int cores = int(::sysconf(_SC_NPROCESSORS_ONLN));
  if (ranks <= cores) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    (void)::sched_setaffinity(0, sizeof core, &core);
  }
  const int local = rank % (ranks / 2);
  Rank self(rank, ranks, meet(rank < ranks / 2, host, std::atoi(port) + local), most);
  for (const Item& item : items) self.measure(item, rounds, warm_up);
}
