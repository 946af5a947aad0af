// A slot is a seqlock: a reader reads the mark, the rest, and the mark again, and has one moment's truth
// if the mark is the same. The first write of a slot simply takes it over. Later ones (a queued call starts, ends)
// may come when a lap has passed and the slot is another's: they swap the mark, and do nothing where it is not theirs.
#include "tutti/trace/flight/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <string>

#include "tutti/base/pause.h"

namespace tutti::trace {
namespace {

constexpr int kReadTries = 1000;
constexpr std::size_t kMostEntries = std::size_t(1) << 24;

std::int64_t read_clock(clockid_t id) {
  timespec at{};
  ::clock_gettime(id, &at);
  return std::int64_t(at.tv_sec) * 1000000000 + at.tv_nsec;
}

// The kernel watches the time stamps of all cores, and takes another clock if they do not agree.
bool kernel_trusts_time_stamps() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name && name == "tsc";
#else
  return false;
#endif
}

}  // namespace

// ---- the clock ----
//
// Two readings of both clocks, one at the start and one when a time is asked for, give the rate of the time stamp: no
// calibration that would take time, and the longer the job ran the better it is.

FlightClock::FlightClock()
    : stamps_(kernel_trusts_time_stamps()), first_ticks_(ticks()), first_ns_(read_clock(CLOCK_MONOTONIC)) {}

std::uint64_t FlightClock::coarse() { return std::uint64_t(read_clock(CLOCK_MONOTONIC_COARSE)); }

FlightClock::Scale FlightClock::scale() const {
  Scale scale;
  scale.now_ticks_ = ticks();
  scale.now_ns_ = read_clock(CLOCK_MONOTONIC);
  if (stamps_ && scale.now_ticks_ > first_ticks_)
    scale.ns_per_tick_ = double(scale.now_ns_ - first_ns_) / double(scale.now_ticks_ - first_ticks_);
  return scale;
}

// ---- the ring ----

std::size_t FlightRing::bytes_for(std::size_t entries) {
  return std::bit_ceil(std::clamp<std::size_t>(entries, 1, kMostEntries)) * sizeof(Slot);
}

FlightRing::FlightRing(std::byte* memory, std::size_t bytes, std::uint64_t* newest, const FlightClock& clock)
    : clock_(clock), newest_(newest), slots_(reinterpret_cast<Slot*>(memory)), mask_(bytes / sizeof(Slot) - 1) {}

FlightRing::FlightRing(std::size_t entries, const FlightClock& clock) : clock_(clock) {
  const std::size_t bytes = bytes_for(entries);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = Mapping(memory, bytes);
  slots_ = static_cast<Slot*>(memory);  // all zero: marks of number 0, which no operation has
  mask_ = bytes / sizeof(Slot) - 1;
}

template <class Act>
void FlightRing::change(std::uint64_t sequence, FlightState to, const Act& act) {
  Slot& s = slot(sequence);
  std::uint64_t mark = s.mark.load(std::memory_order_relaxed);
  const std::uint64_t busy = mark_of(sequence, FlightState::kBeingWritten);
  if (mark >> 3 != sequence || !s.mark.compare_exchange_strong(mark, busy, std::memory_order_acquire)) return;
  std::atomic_thread_fence(std::memory_order_release);
  act(s);
  mark = busy;
  s.mark.compare_exchange_strong(mark, mark_of(sequence, to), std::memory_order_release, std::memory_order_relaxed);
}

void FlightRing::started(std::uint64_t sequence, std::uint64_t shape) {
  change(sequence, FlightState::kStarted, [&](Slot& s) {
    s.shape.store(shape, std::memory_order_relaxed);
    s.started.store(clock_.ticks(), std::memory_order_relaxed);
  });
}

void FlightRing::ended(std::uint64_t sequence, bool well) {
  change(sequence, well ? FlightState::kCompleted : FlightState::kFailed,
         [&](Slot& s) { s.ended.store(clock_.ticks(), std::memory_order_relaxed); });
}

std::optional<FlightEntry> FlightRing::read(const Slot& s) const {
  for (int tries = 0; tries < kReadTries; ++tries, pause_cpu()) {
    const std::uint64_t mark = s.mark.load(std::memory_order_acquire);
    FlightEntry entry{.sequence = mark >> 3, .state = FlightState(mark & 7)};
    if (entry.sequence == 0) return {};
    if (entry.state == FlightState::kBeingWritten) continue;
    entry.call.shape = s.shape.load(std::memory_order_relaxed);
    entry.call.count = s.count.load(std::memory_order_relaxed);
    entry.call.extra = s.extra.load(std::memory_order_relaxed);
    entry.call.site = CallSite::from_bits(s.site.load(std::memory_order_relaxed));
    entry.scheduled = s.scheduled.load(std::memory_order_relaxed);
    entry.started = s.started.load(std::memory_order_relaxed);
    entry.ended = s.ended.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (s.mark.load(std::memory_order_relaxed) != mark) continue;
    // What the slot's last tenant left.
    if (entry.state != FlightState::kCompleted && entry.state != FlightState::kFailed) entry.ended = 0;
    return entry;
  }
  return {};
}

std::optional<FlightEntry> FlightRing::parse(const std::byte (&slot)[64]) {
  std::uint64_t words[8];
  std::memcpy(words, slot, sizeof words);
  FlightEntry entry{.sequence = words[0] >> 3, .state = FlightState(words[0] & 7)};
  if (entry.sequence == 0 || entry.state == FlightState::kBeingWritten) return {};
  entry.call = {.shape = words[1], .count = words[2], .extra = words[3], .site = CallSite::from_bits(words[4])};
  entry.scheduled = words[5];
  entry.started = words[6];
  if (entry.state == FlightState::kCompleted || entry.state == FlightState::kFailed) entry.ended = words[7];
  return entry;
}

std::optional<FlightEntry> FlightRing::read(std::uint64_t sequence) const {
  auto entry = read(slot(sequence));
  return entry && entry->sequence == sequence ? entry : std::nullopt;
}

std::vector<FlightEntry> FlightRing::newest(std::size_t most) const {
  std::vector<FlightEntry> entries;
  for (std::size_t i = 0; i < capacity(); ++i)
    if (auto entry = read(slots_[i])) entries.push_back(*entry);
  std::sort(entries.begin(), entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.sequence < b.sequence; });
  if (entries.size() > most) entries.erase(entries.begin(), entries.end() - std::ptrdiff_t(most));
  return entries;
}

}  // namespace tutti::trace
