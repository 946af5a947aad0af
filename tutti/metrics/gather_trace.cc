// Clocks are compared as by Cristian (1989): rank r asks, rank 0 answers with its time, and r takes the answer for the
// time in the middle of the round trip. The error is at most half the round trip, so the shortest of several rounds
// counts. Ranks on one host share the clock, and do not ask.
#include "tutti/metrics/gather_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

constexpr int kRounds = 32;
constexpr ObjectLimit kEvents{.most = std::size_t(4) << 30};

std::int64_t nanoseconds() { return now().time_since_epoch().count(); }

void answer(const Group& group, int peer) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t time = 0;
    recv(group, std::span(&time, 1), peer);
    time = nanoseconds();
    send(group, std::span<const std::int64_t>(&time, 1), peer);
  }
}

void ask(const Group& group, TraceRank& mine) {
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t asked = nanoseconds();
    send(group, std::span<const std::int64_t>(&asked, 1), 0);
    std::int64_t there = 0;
    recv(group, std::span(&there, 1), 0);
    const std::int64_t heard = nanoseconds();
    const Duration error((heard - asked + 1) / 2);
    if (round > 0 && error >= mine.clock_error) continue;
    mine.clock_error = error;
    mine.clock_offset = Duration(there - (asked + (heard - asked) / 2));
  }
}

}  // namespace

TraceRank compare_clocks(const Group& group) {
  TraceRank mine{.rank = group.rank(), .host = host_name()};
  const std::int64_t node = group.node();
  std::vector<std::int64_t> nodes(std::size_t(group.size()));
  all_gather(group, std::span(&node, 1), std::span(nodes));
  for (int rank = 1; rank < group.size(); ++rank) {
    if (nodes[std::size_t(rank)] == nodes[0]) continue;
    if (group.rank() == 0) answer(group, rank);
    if (group.rank() == rank) ask(group, mine);
  }
  return mine;
}

namespace {

// Where a rank's events lie on the time line that begins with rank 0's trace.
struct Placed {
  TraceRank rank;
  Clock::time_point origin;
  double wall_clock = 0;  // of the origin
};

Placed place(const Group& group, const Trace& mine) {
  Placed placed{.rank = compare_clocks(group)};
  std::int64_t origin = mine.begin.time_since_epoch().count();
  broadcast(group, std::span(&origin, 1));
  placed.origin = Clock::time_point(Duration(origin));
  placed.wall_clock = mine.wall_clock;
  broadcast(group, std::span(&placed.wall_clock, 1));
  return placed;
}

}  // namespace

std::string rank_trace_path(const std::string& folder, int rank) {
  return fmt::format("{}/trace-rank{:04}.json", folder, rank);
}

Result<int> remove_traces_of_more_ranks(const Group& group, const std::string& folder) {
  std::error_code failure;
  std::vector<std::string> others;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    int rank = 0;
    const std::string path = entry->path().string();
    if (std::sscanf(entry->path().filename().c_str(), "trace-rank%9d.json", &rank) == 1 && rank >= group.size() &&
        path == rank_trace_path(folder, rank))
      others.push_back(path);
  }
  if (failure) return system_error(failure.value(), "cannot read the folder " + folder);
  int removed = 0;
  for (const auto& path : others) {
    if (::unlink(path.c_str()) == 0)
      ++removed;
    else if (errno != ENOENT)  // another rank was faster
      return system_error(errno, "cannot remove " + path);
  }
  return removed;
}

Status write_rank_trace(const Group& group, const Trace& mine, const std::string& folder) {
  const Placed placed = place(group, mine);
  const std::string path = rank_trace_path(folder, group.rank());
  if (const Status made = make_folder(folder); !made.ok()) return agree(group, made);
  return agree(group, write_file(path, chrome_trace_head(std::span(&placed.rank, 1), placed.wall_clock) +
                                           chrome_events(mine, placed.rank, placed.origin) + kChromeTraceTail));
}

Status write_chrome_trace(const Group& group, const Trace& mine, const std::string& path) {
  const Placed placed = place(group, mine);
  const std::string events = chrome_events(mine, placed.rank, placed.origin);

  const std::int64_t clock[] = {placed.rank.clock_offset.count(), placed.rank.clock_error.count()};
  std::vector<std::int64_t> clocks(2 * std::size_t(group.size()));
  all_gather(group, std::span<const std::int64_t>(clock), std::span(clocks));
  std::vector<TraceRank> ranks;
  for (int rank = 0; rank < group.size(); ++rank)
    ranks.push_back({.rank = rank,
                     .clock_offset = Duration(clocks[2 * std::size_t(rank)]),
                     .clock_error = Duration(clocks[2 * std::size_t(rank) + 1])});

  if (group.rank() != 0) {
    send_bytes(group, events, 0, 0, kEvents);
    return agree(group, {});
  }
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  Status written = fd ? Status() : system_error(errno, fmt::format("cannot write {}", path));
  const auto write = [&](const std::string& text) {
    if (written.ok()) written = write_all(fd.get(), std::as_bytes(std::span(text)), path);
  };
  write(chrome_trace_head(ranks, placed.wall_clock) + events);
  for (int rank = 1; rank < group.size(); ++rank)  // taken off the links also where they cannot be written
    write(kChromeTraceComma + recv_bytes(group, rank, 0, nullptr, kEvents));
  write(kChromeTraceTail);
  return agree(group, written);
}

}  // namespace tutti
