// Peer: an all_reduce, a reduce_scatter and a barrier of two or more ranks in shared memory with nothing around them:
// no checks, no deadlines, no choice of a path, one element type. They are what is left when everything else is taken
// away, and so what the direct path of tutti is measured against. By the method of `tutti bench`
// (docs/reference/benchmarks.md), with the keys of its --json.
//
//   peer_bare --ranks N [--rounds R] [--warm-up W] [--rewrite] [--private] all_reduce|reduce_scatter|barrier:BYTES...
//
// starts its ranks, each on a core. Rank r adds slice r of all vectors in rank order and stores the sum to all of them,
// between two barriers, or, for a reduce_scatter, past the caches to where no vector was. Up to 64 bytes travel with
// the flag that says so, and private vectors (short ones only) through a copy that all can read: of both there are two,
// in turn, so that one meeting is enough.
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/peers/bare_sum.h"

namespace {

using bare::Sum;
using bare::Vector;
using bare::widest_sum;

constexpr int kMostRanks = 16;

constexpr std::size_t kWithFlag = 64, kMostPrivate = 16 << 10;

struct alignas(128) Line {
  std::atomic<std::uint64_t> arrived;
  float payload[kWithFlag / sizeof(float)];
};
struct Control {
  Line lines[kMostRanks], payloads[2][kMostRanks];
  alignas(128) float copies[2][kMostRanks][kMostPrivate / sizeof(float)];
  double seconds[kMostRanks];
};

enum class Op { kAllReduce, kReduceScatter, kBarrier };
struct Item {
  Op op;
  std::size_t bytes;
};
constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "barrier"};

struct Settings {
  int ranks = 0, rounds = 7, warm_up = 1;
  bool rewrite = false, is_private = false;
  std::vector<Item> items;
};

inline void store_past_caches(float* to, const Vector& value) {
#if defined(__x86_64__)
  for (int i = 0; i < 16; i += 4) _mm_stream_ps(to + i, _mm_load_ps(reinterpret_cast<const float*>(&value) + i));
#else
  *reinterpret_cast<Vector*>(to) = value;
#endif
}

// The sum of a part of all vectors, to another place past the caches.
inline __attribute__((always_inline)) void sum_to_body(float* to, float* const* vectors, int ranks, std::size_t begin,
                                                       std::size_t end) {
  for (std::size_t i = begin; i < end; i += 16, to += 16) {
    Vector sum = *reinterpret_cast<Vector*>(vectors[0] + i);
    for (int r = 1; r < ranks; ++r) sum += *reinterpret_cast<Vector*>(vectors[r] + i);
    store_past_caches(to, sum);
  }
}
using SumTo = void(float*, float* const*, int, std::size_t, std::size_t);
void sum_to_plain(float* to, float* const* v, int n, std::size_t begin, std::size_t end) {
  sum_to_body(to, v, n, begin, end);
}
#if defined(__x86_64__)
// Written out: as a template for all widths the stores would be four of a quarter line.
__attribute__((target("avx512f"))) void sum_to_avx512(float* to, float* const* v, int n, std::size_t begin,
                                                      std::size_t end) {
  for (std::size_t i = begin; i < end; i += 16, to += 16) {
    __m512 sum = _mm512_load_ps(v[0] + i);
    for (int r = 1; r < n; ++r) sum = _mm512_add_ps(sum, _mm512_load_ps(v[r] + i));
    _mm512_stream_ps(to, sum);
  }
}
SumTo* widest_sum_to() { return __builtin_cpu_supports("avx512f") ? sum_to_avx512 : sum_to_plain; }
#else
SumTo* widest_sum_to() { return sum_to_plain; }
#endif

// sums += the vectors of all ranks but `own`.
inline __attribute__((always_inline)) void add_body(float* sums, float* const* vectors, int ranks, int own,
                                                    std::size_t count) {
  for (int r = 0; r < ranks; ++r)
    if (r != own)
      for (std::size_t i = 0; i < count; i += 16)
        *reinterpret_cast<Vector*>(sums + i) += *reinterpret_cast<const Vector*>(vectors[r] + i);
}
using Add = void(float*, float* const*, int, int, std::size_t);
void add_plain(float* s, float* const* v, int n, int own, std::size_t count) { add_body(s, v, n, own, count); }
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void add_avx512(float* s, float* const* v, int n, int own, std::size_t count) {
  add_body(s, v, n, own, count);
}
Add* widest_add() { return __builtin_cpu_supports("avx512f") ? add_avx512 : add_plain; }
#else
Add* widest_add() { return add_plain; }
#endif

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Rank {
 public:
  Rank(const Settings& settings, Control& control, float* memory, std::size_t stride, int rank)
      : settings_(settings),
        control_(control),
        rank_(rank),
        ranks_(settings.ranks),
        spins_(ranks_ <= int(::sysconf(_SC_NPROCESSORS_ONLN))) {
    for (int r = 0; r < ranks_; ++r) vectors_[r] = memory + std::size_t(r) * stride;
    part_ = memory + std::size_t(ranks_ + rank) * stride;
  }

  void measure(const Item& item) {
    const std::size_t bytes = item.bytes;
    const std::size_t count = bytes <= kWithFlag ? bytes / sizeof(float) : bytes / 64 * 16;  // whole vectors
    const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= (std::size_t(4) << 20) ? 10 : 2;
    std::vector<double> seconds;
    for (int round = -settings_.warm_up; round < settings_.rounds; ++round) {
      std::memset(static_cast<void*>(vectors_[rank_]), 0, bytes);
      barrier();
      double sum = 0, begin = now();
      for (int i = 0; i < calls; ++i) {
        if (settings_.rewrite) rewrite(bytes), barrier(), begin = now();
        call(item.op, count);
        if (settings_.rewrite) sum += now() - begin;
      }
      control_.seconds[rank_] = (settings_.rewrite ? sum : now() - begin) / calls;
      barrier();
      if (round >= 0) seconds.push_back(*std::max_element(control_.seconds, control_.seconds + ranks_));
      barrier();
    }
    std::sort(seconds.begin(), seconds.end());
    if (rank_ != 0) return;
    std::printf("{\"peer\":\"bare\",\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n",
                kNames[int(item.op)], ranks_, bytes, seconds[seconds.size() / 2] * 1e6, seconds[0] * 1e6);
    std::fflush(stdout);
  }

 private:
  void barrier() {
    control_.lines[rank_].arrived.store(++meetings_, std::memory_order_release);
    for (int r = 0; r < ranks_; ++r)
      while (control_.lines[r].arrived.load(std::memory_order_acquire) < meetings_)
        if (!spins_) ::sched_yield();
  }
  void call(Op op, std::size_t count) {
    if (op == Op::kBarrier) return barrier();
    if (op == Op::kReduceScatter) return reduce_scatter(count);
    if (count * sizeof(float) <= kWithFlag) return all_reduce_with_flag(count);
    if (settings_.is_private) return all_reduce_private(count);
    barrier();
    sum_(vectors_, ranks_, cut(count, rank_), cut(count, rank_ + 1));
    barrier();
  }
  void reduce_scatter(std::size_t count) {
    barrier();
    sum_to_(part_, vectors_, ranks_, cut(count, rank_), cut(count, rank_ + 1));
    barrier();
  }
  // Where the slice of a rank begins: at a line.
  std::size_t cut(std::size_t count, int rank) const {
    return rank == ranks_ ? count : count * std::size_t(rank) / std::size_t(ranks_) & ~std::size_t(15);
  }
  // Who posts its next but one has seen everybody post the next, who therefore had read this one.
  void all_reduce_with_flag(std::size_t count) {
    Line* const lines = control_.payloads[++calls_ % 2];
    std::memcpy(lines[rank_].payload, vectors_[rank_], count * sizeof(float));
    lines[rank_].arrived.store(calls_, std::memory_order_release);
    float sums[kWithFlag / sizeof(float)] = {};
    for (int r = 0; r < ranks_; ++r) {
      while (lines[r].arrived.load(std::memory_order_acquire) < calls_)
        if (!spins_) ::sched_yield();
      for (std::size_t i = 0; i < count; ++i) sums[i] += lines[r].payload[i];
    }
    std::memcpy(vectors_[rank_], sums, count * sizeof(float));
  }
  void all_reduce_private(std::size_t count) {
    auto* const copies = control_.copies[++calls_ % 2];
    std::memcpy(copies[rank_], vectors_[rank_], count * sizeof(float));
    barrier();
    float* vectors[kMostRanks];
    for (int r = 0; r < ranks_; ++r) vectors[r] = r == rank_ ? vectors_[r] : copies[r];
    add_(vectors_[rank_], vectors, ranks_, rank_, count);
  }
  // Each word is read, and written as it was.
  void rewrite(std::size_t bytes) {
    std::uint64_t all_ones = ~std::uint64_t(0);
    __asm__ volatile("" : "+r"(all_ones));
    auto* const words = reinterpret_cast<char*>(vectors_[rank_]);
    for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, words + at, 8);
      word &= all_ones;
      std::memcpy(words + at, &word, 8);
    }
    __asm__ volatile("" : : "r"(words) : "memory");
  }

  const Settings& settings_;
  Control& control_;
  const int rank_, ranks_;
  const bool spins_;
  Sum* const sum_ = widest_sum();
  SumTo* const sum_to_ = widest_sum_to();
  float* vectors_[kMostRanks] = {};
  float* part_ = nullptr;  // of a reduce_scatter
  Add* const add_ = widest_add();
  std::uint64_t meetings_ = 0, calls_ = 0;
};

void pin(int rank) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = rank % CPU_COUNT(&allowed), core = 0;
  while (!CPU_ISSET(core, &allowed) || skip-- > 0) ++core;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(core, &mine);
  (void)::sched_setaffinity(0, sizeof mine, &mine);
}

void* share(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::perror("peer_bare: mmap"), std::exit(1);
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return memory;
}

int usage() {
  std::fprintf(stderr,
               "usage: peer_bare --ranks N [--rounds R] [--warm-up W] [--rewrite] [--private] "
               "all_reduce|reduce_scatter|barrier:BYTES...\n");
  return 2;
}

bool add_item(Settings& settings, const std::string& word) {
  const std::size_t colon = word.find(':');
  for (int op = 0; op < 3; ++op) {
    if (word.substr(0, colon) != kNames[op] || colon == std::string::npos) continue;
    settings.items.push_back({Op(op), std::stoull(word.substr(colon + 1))});
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rewrite")
      settings.rewrite = true;
    else if (word == "--private")
      settings.is_private = true;
    else if (word == "--ranks" && i + 1 < argc)
      settings.ranks = std::atoi(argv[++i]);
    else if (word == "--rounds" && i + 1 < argc)
      settings.rounds = std::atoi(argv[++i]);
    else if (word == "--warm-up" && i + 1 < argc)
      settings.warm_up = std::atoi(argv[++i]);
    else if (!add_item(settings, word))
      return usage();
  }
  if (settings.ranks < 2 || settings.ranks > kMostRanks || settings.rounds < 1 || settings.items.empty())
    return usage();
  std::size_t most = 0;
  for (const Item& item : settings.items) most = std::max(most, item.bytes);
  if (settings.is_private && most > kMostPrivate) return usage();
  const std::size_t stride = (most + 4095) / 4096 * 4096 / sizeof(float);
  auto* const control = static_cast<Control*>(share(sizeof(Control)));
  auto* const memory = static_cast<float*>(share(2 * std::size_t(settings.ranks) * stride * sizeof(float)));
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(rank);
    Rank self(settings, *control, memory, stride, rank);
    for (const Item& item : settings.items) self.measure(item);
    ::_exit(0);
  }
  int status = 0, worst = 0;
  while (::wait(&status) > 0) worst |= status;
  return worst != 0;
}
