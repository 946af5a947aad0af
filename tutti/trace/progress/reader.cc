// pread() and not a mapping: it reads holes of the file without filling them, and cannot fault.
#include "tutti/trace/progress/reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "tutti/trace/progress/page.h"

namespace tutti::trace {
namespace {

constexpr std::uint64_t kSlot = 64;
constexpr std::uint64_t kLookBack = 256;  // calls of a group that may be under way at once, for the oldest of them
constexpr std::uint64_t kLookAhead = 4;   // `newest` is a hint
constexpr int kTries = 8;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

template <std::size_t N>
std::string text_in(const char (&bytes)[N]) {
  return std::string(bytes, ::strnlen(bytes, N));
}

ProgressFrames frames_in(const ProgressStack& stack) {
  ProgressFrames frames{.number = stack.number};
  if (stack.number == 0) return frames;
  frames.signal = stack.signal;
  frames.thread = stack.thread;
  frames.address = stack.address;
  frames.frames.assign(stack.frames, stack.frames + std::min(stack.count, ProgressStack::kFrames));
  frames.maps = text_in(stack.maps);
  return frames;
}

}  // namespace

std::optional<ProgressCall> ProgressReader::read_call(int group, bool exchange, std::uint64_t sequence,
                                                      std::uint64_t entries, const FlightClock::Scale& scale) const {
  const std::uint64_t ring = entries * kSlot;
  const std::uint64_t offset =
      ProgressLayout::kRingsBegin + (std::uint64_t(group) * 2 + exchange) * ring + (sequence & (entries - 1)) * kSlot;
  std::byte slot[kSlot], again[kSlot];
  for (int tries = 0; tries < kTries; ++tries) {
    if (::pread(fd_, slot, kSlot, off_t(offset)) != ssize_t(kSlot)) return {};
    if (::pread(fd_, again, kSlot, off_t(offset)) != ssize_t(kSlot)) return {};
    if (std::memcmp(slot, again, kSlot) != 0) continue;
    const auto entry = FlightRing::parse(slot);
    if (!entry) continue;
    if (entry->sequence != sequence) return {};
    const auto time = [&](std::uint64_t ticks) { return ticks ? scale.monotonic(ticks) : 0; };
    return ProgressCall{.exchange = exchange,
                        .sequence = sequence,
                        .state = entry->state,
                        .call = entry->call,
                        .scheduled = time(entry->scheduled),
                        .started = time(entry->started),
                        .ended = time(entry->ended)};
  }
  return {};
}

RankProgress ProgressReader::read(bool all) const {
  const auto page = std::make_unique<ProgressLayout>();  // too large for the stack
  const std::size_t wanted = all ? sizeof(ProgressLayout) : offsetof(ProgressLayout, crash);
  RankProgress p;
  const FlightClock::Scale scale = clock_.scale();
  p.read_at = scale.now();
  if (::pread(fd_, page.get(), wanted, 0) != ssize_t(wanted)) return p;
  p.called = page->called != 0;
  if (page->pid == 0) return p;
  p.pid = page->pid;
  p.rank = page->rank;
  p.world_size = page->world_size;
  p.joined = page->joined != 0;
  p.lost = int(page->lost) - 1;
  p.echoes = page->echoes != 0;
  const std::uint64_t entries = page->ring_entries;
  p.recorded = entries != 0;
  p.steps = page->steps;
  if (page->alarm_size) p.alarm = text_in(page->alarm);
  if (p.steps) p.step = page->step, p.step_began = page->step_began;
  p.progress_mark = mix(mix(std::uint64_t(p.pid), p.steps), p.joined);
  for (int i = 0; i < ProgressLayout::kGroups && entries != 0 && (entries & (entries - 1)) == 0; ++i) {
    const ProgressLayout::Group& place = page->groups[i];
    if (place.state == 0) continue;
    ProgressGroup group{
        .id = place.id, .name = text_in(place.name), .rank = place.rank, .size = place.size, .left = place.state == 2};
    for (const bool exchange : {false, true}) {
      std::uint64_t newest = place.newest[exchange];
      if (newest == 0) continue;
      auto& last = exchange ? group.newest_exchange : group.newest;
      last = read_call(i, exchange, newest, entries, scale);
      for (std::uint64_t next = newest + 1; next <= newest + kLookAhead; ++next) {
        auto call = read_call(i, exchange, next, entries, scale);
        if (!call) break;
        last = std::move(call);
        newest = next;
      }
      (exchange ? group.exchanges : group.calls) = newest;
      const std::uint64_t least =
          newest > std::min(kLookBack, entries - 1) ? newest - std::min(kLookBack, entries - 1) : 0;
      // Collectives end in order, so the first that is over ends the search; sends and receives do not.
      std::uint64_t under_way = 0;
      for (std::uint64_t sequence = newest; sequence > least; --sequence) {
        auto call = sequence == newest ? last : read_call(i, exchange, sequence, entries, scale);
        if (!call) continue;
        if (call->is_over()) {
          if (!exchange) break;
          continue;
        }
        ++under_way;
        if (!group.oldest || call->began() < group.oldest->began()) group.oldest = std::move(call);
      }
      p.progress_mark = mix(mix(p.progress_mark, newest), under_way);
      if (last) p.progress_mark = mix(p.progress_mark, std::uint64_t(last->state));
    }
    p.groups.push_back(std::move(group));
  }
  if (all) {
    if (page->message_size) p.message = text_in(page->message);
    p.crash = frames_in(page->crash);
    p.look = frames_in(page->look);
  }
  if (page->exact_clock != std::uint32_t(clock_.is_exact())) {  // it looks at another clock: its times mean nothing
    for (ProgressGroup& group : p.groups)
      for (auto* call : {&group.oldest, &group.newest, &group.newest_exchange})
        if (*call) (*call)->scheduled = (*call)->started = (*call)->ended = 0;
  }
  return p;
}

RankProgress ProgressReader::read() const { return read(true); }
RankProgress ProgressReader::read_brief() const { return read(false); }

Status ProgressReader::request_stop(int signal) const {
  const std::uint32_t word = std::uint32_t(signal);
  if (::pwrite(fd_, &word, sizeof word, offsetof(ProgressLayout, stop_request)) != sizeof word)
    return system_error(errno, "could not ask a rank to stop through its progress page");
  return {};
}

const ProgressCall* RankProgress::current(const ProgressGroup** of) const {
  const ProgressCall* found = nullptr;
  const auto consider = [&](const ProgressGroup& group, const std::optional<ProgressCall>& call, const auto& better) {
    if (!call || (found && !better(*call, *found))) return;
    found = &*call;
    if (of) *of = &group;
  };
  for (const ProgressGroup& group : groups)
    consider(group, group.oldest, [](const auto& a, const auto& b) { return a.began() < b.began(); });
  if (found) return found;
  for (const ProgressGroup& group : groups)
    for (const auto* call : {&group.newest, &group.newest_exchange})
      consider(group, *call, [](const auto& a, const auto& b) { return a.began() > b.began(); });
  return found;
}

}  // namespace tutti::trace
