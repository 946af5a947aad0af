// Peer: an all_reduce of two ranks over one TCP connection by the socket calls alone: what a call between two hosts
// costs when everything around send() and recv() is taken away. By the method of `tutti bench` (docs/performance.md),
// with the keys of its --json.
//
//   RANK=0|1 MASTER_ADDR=A MASTER_PORT=P peer_bare_wire [--rounds R] [--warm-up W] all_reduce:BYTES...
//
// Short vectors are exchanged whole. Of a long one each rank adds up its half: the other half leaves in chunks, and
// what has been added goes back between them, two chunks behind, so that both directions are always full.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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

int meet(int rank, const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) die("peer_bare_wire: MASTER_ADDR");
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  if (rank == 0) {
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

class Rank {
 public:
  Rank(int rank, int fd) : rank_(rank), fd_(fd), scratch_(std::max(kChunk, kShort)) {}

  void measure(std::size_t bytes, int rounds, int warm_up) {
    vector_.assign(bytes / sizeof(float), 0.f);
    const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= (std::size_t(4) << 20) ? 10 : 2;
    std::vector<double> seconds;
    for (int round = -warm_up; round < rounds; ++round) {
      float meeting = 0;
      exchange(&meeting, sizeof meeting);
      const double begin = now();
      for (int i = 0; i < calls; ++i)
        if (bytes <= kShort)
          exchange(vector_.data(), bytes);
        else
          halves(vector_.data(), vector_.size());
      if (round >= 0) seconds.push_back((now() - begin) / calls);
    }
    std::sort(seconds.begin(), seconds.end());
    if (rank_ != 0) return;
    std::printf(
        "{\"peer\":\"bare_wire\",\"op\":\"all_reduce\",\"ranks\":2,\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n", bytes,
        seconds[seconds.size() / 2] * 1e6, seconds[0] * 1e6);
    std::fflush(stdout);
  }

 private:
  // What of it went now.
  std::size_t moved(ssize_t n, const char* what) {
    if (n > 0) return std::size_t(n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) die(what);
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
    float *const mine = vector + std::size_t(rank_) * half, *const others = vector + std::size_t(1 - rank_) * half;
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

  const int rank_, fd_;
  std::vector<char> scratch_;
  std::vector<float> vector_;
};

}  // namespace

int main(int argc, char** argv) {
  const char *const rank = std::getenv("RANK"), *const host = std::getenv("MASTER_ADDR"),
                    *const port = std::getenv("MASTER_PORT");
  int rounds = 7, warm_up = 1;
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rounds" && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (word == "--warm-up" && i + 1 < argc)
      warm_up = std::atoi(argv[++i]);
    else if (word.rfind("all_reduce:", 0) == 0)
      sizes.push_back(std::stoull(word.substr(11)));
    else
      sizes.clear(), i = argc;
  }
  if (!rank || !host || !port || rounds < 1 || sizes.empty()) {
    std::fprintf(stderr,
                 "usage: RANK=0|1 MASTER_ADDR=A MASTER_PORT=P peer_bare_wire [--rounds R] [--warm-up W] "
                 "all_reduce:BYTES...\n");
    return 2;
  }
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(std::atoi(rank) % std::max(1, int(::sysconf(_SC_NPROCESSORS_ONLN))), &core);
  (void)::sched_setaffinity(0, sizeof core, &core);
  Rank self(std::atoi(rank), meet(std::atoi(rank), host, std::atoi(port)));
  for (const std::size_t bytes : sizes) self.measure(bytes, rounds, warm_up);
}
