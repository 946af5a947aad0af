#include "tutti/comm/shared_memory/channel.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "tutti/comm/layout.h"
#include "tutti/comm/shared_memory/spread.h"

namespace tutti::comm {
namespace {

std::uint32_t current_core() { return std::uint32_t(::sched_getcpu()); }

}  // namespace

DirectChannel::DirectChannel(transport::Host& host, Heap& heap, GroupMemory& memory, std::vector<int> local_ranks,
                             int rank)
    : host_(host), heap_(heap), memory_(memory), control_(memory.control), rank_(rank), size_(int(local_ranks.size())) {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) bells_.push_back(host_.bell(local_ranks[r]));
  const auto n = std::size_t(size_);
  scratch_ = {.descriptors = std::vector<Descriptor>(n),
              .ins = std::vector<const void*>(n),
              .outs = std::vector<void*>(n),
              .slots = std::vector<std::byte*>(n),
              .factors = std::vector<double>(n),
              .cores = std::vector<std::uint32_t>(n)};
}

std::uint64_t DirectChannel::post(std::uint16_t fingerprint, const void* payload, std::size_t bytes) {
  CallLine& line = next_line();
  if (bytes == 8)  // the usual loss or flag: one store instead of a call
    std::memcpy(line.payload, payload, 8);
  else if (bytes)
    std::memcpy(line.payload, payload, bytes);
  return publish(fingerprint);
}

std::uint64_t DirectChannel::publish(std::uint16_t fingerprint) {
  CallLine& line = next_line();
  const std::uint64_t tick = ++tick_;
  const std::uint64_t word = tick << 16 | fingerprint;
  line.core.store(current_core(), std::memory_order_relaxed);
  line.word.store(word, std::memory_order_release);
  __builtin_prefetch(&control_.lines(int((tick + 1) % kSlots))[rank_], 1);  // acquires the cache line in advance
  ring_peers();
  return word;
}

std::optional<int> DirectChannel::take_slice(std::uint64_t tick, int slices) {
  SharedWork& work = control_.work(int(tick % kSlots));
  std::uint64_t seen = work.taken.load(std::memory_order_relaxed);
  for (;;) {
    const int taken = tick_of(seen) == tick ? int(seen & 0xffff) : 0;
    if (tick_of(seen) > tick || taken == slices) return std::nullopt;
    if (!work.taken.compare_exchange_weak(seen, tick << 16 | std::uint64_t(taken + 1), std::memory_order_relaxed))
      continue;
    work.owner[taken].store(std::uint16_t(rank_ + 1), std::memory_order_relaxed);
    return taken;
  }
}

void DirectChannel::finish_slice(std::uint64_t tick, int slice, int slices) {
  SharedWork& work = control_.work(int(tick % kSlots));
  work.owner[slice].store(0, std::memory_order_relaxed);
  std::uint64_t seen = work.done.load(std::memory_order_relaxed), done;
  do {
    done = (tick_of(seen) == tick ? seen & 0xffff : 0) + 1;
  } while (!work.done.compare_exchange_weak(seen, tick << 16 | done, std::memory_order_acq_rel));
  if (done == std::uint64_t(slices)) ring_peers();
}

bool DirectChannel::all_slices_are_done(std::uint64_t tick, int slices) const {
  return control_.work(int(tick % kSlots)).done.load(std::memory_order_acquire) >= (tick << 16 | std::uint64_t(slices));
}

std::vector<int> DirectChannel::owners_of_slices(std::uint64_t tick) const {
  std::vector<int> owners;
  for (const auto& owner : control_.work(int(tick % kSlots)).owner)
    if (const int rank = owner.load(std::memory_order_relaxed) - 1; rank >= 0) owners.push_back(rank);
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  return owners;
}

bool DirectChannel::awaits_this_core(std::uint64_t word, int next) const {
  const CallLine* const posted = lines(tick_of(word));
  const CallLine* const before = lines(tick_of(word) - 1);
  const std::uint32_t here = current_core();
  for (int r = next; r < size_; ++r)
    if (before[r].core.load(std::memory_order_relaxed) == here &&
        posted[r].word.load(std::memory_order_relaxed) != word)
      return true;
  return false;
}

// The kernel may have reasons to move a thread back, such as other programs. So each move doubles the interval to the
// next check.
void DirectChannel::spread() {
  constexpr std::uint64_t kSeldom = 1 << 16;
  for (int r = 0; r < size_; ++r) scratch_.cores[r] = lines(tick_)[r].core.load(std::memory_order_relaxed);
  if (move_to_better_core(scratch_.cores, rank_)) spread_every_ = std::min(2 * spread_every_, kSeldom);
  next_spread_ = tick_ + spread_every_;
}

void DirectChannel::ring_peers() const {
  for (const transport::Bell& bell : bells_) bell.ring();
}

std::uint64_t DirectChannel::place_of(const void* p, std::size_t bytes) const {
  if (!p) return 0;
  const transport::Host::ArenaAddress place = host_.find(p, bytes);
  return place.owner < 0 ? 0 : std::uint64_t(place.owner + 1) << 48 | place.offset;
}

Result<std::uint64_t> DirectChannel::slots() {
  if (!has_slots_) {
    slots_offset_ = TUTTI_TRY(memory_.allocate(heap_, kSlotsBytes));
    has_slots_ = true;
  }
  return slots_if_there();
}

namespace {

// Only common splits are equal on all ranks, so only they enter the fingerprint.
[[gnu::noinline]] std::uint64_t fingerprint_of_splits(const Request& r) {
  return has_common_splits(r.kind) ? digest_of(common_splits(r)) : ~0ull;
}

}  // namespace

std::uint16_t fingerprint_of(const Request& r) {
  // Root and op count only for verbs that use them, so that their defaults elsewhere make no difference.
  const std::uint64_t op = is_reduction(r.kind) ? std::uint64_t(r.op) : 0;
  const std::uint64_t root = has_root(r.kind) ? std::uint32_t(r.root) : 0;
  const bool moves = verb(r.kind).combine != Verb::Combine::kNothing;
  const std::uint64_t dtype = moves ? std::uint64_t(r.dtype) + 1 : 0;
  const std::uint64_t count = !moves ? 0 : has_splits(r) ? fingerprint_of_splits(r) : r.count;
  std::uint64_t h = (std::uint64_t(r.kind) << 48 | dtype << 40 | op << 32 | root) * 0x9e3779b97f4a7c15ull ^
                    count * 0xc2b2ae3d27d4eb4full;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  return std::uint16_t(h >> 48);
}

}  // namespace tutti::comm
