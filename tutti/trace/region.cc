// Each thread has a log of its own: the stack of its open regions, the totals of those that have ended, and their
// events. A region is added to the totals when it ends, so that the table stays right however long the trace and
// however small the room for events. What a region spends outside of the regions within it is its own: when one ends,
// its time is added to the `within` of the one below it on the stack.
//
// That a program traces is a fact of the process, as its standard error is: regions are opened deep in code that knows
// nothing of who looks on, and on threads that nobody has handed anything (autograd's). So the logs are known to one
// list here. Traces are numbered, odd while one is under way; a region remembers the number at its begin, and one whose
// number has passed is forgotten at its end. A log's mutex is its thread's alone until the trace is collected.
#include "tutti/trace/region.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "tutti/base/mutex.h"

namespace tutti {
namespace {

struct Key {
  const char* name;
  std::string detail;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const std::size_t hash = std::hash<const void*>()(key.name);
    return key.detail.empty() ? hash : hash ^ (std::hash<std::string>()(key.detail) << 1);
  }
};

struct OpenRegion {
  std::uint32_t which;
  Clock::time_point begin;
  Duration within{0};
};

// What a thread has recorded of one trace.
struct Record {
  std::uint64_t trace = 0;
  std::unordered_map<Key, std::uint32_t, KeyHash> known;  // to its place in `totals`
  std::vector<RegionTotals> totals;
  std::vector<OpenRegion> open;
  ThreadEvents thread;
};

constexpr const char* kMainThread = "main";

std::string name_of_this_thread() {
  if (::gettid() == ::getpid()) return kMainThread;
  char name[32] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

}  // namespace

namespace detail {

std::atomic<bool> tracing{false};

class ThreadLog {
 public:
  // The number of the trace that the region is in; 0: none is under way any more.
  std::uint64_t open(const char* name, std::string detail);
  void close(std::uint64_t trace);
  void span(std::uint64_t trace, const ThreadEvents& lane, const char* name, std::string detail,
            Clock::time_point begin, Duration took);
  Record take() {
    const MutexLock lock(mutex_);
    return std::exchange(record_, {});
  }

 private:
  void begin_record(std::uint64_t trace, const ThreadEvents& of) TUTTI_REQUIRES(mutex_);
  std::uint32_t which(const char* name, std::string detail, bool is_span) TUTTI_REQUIRES(mutex_);
  void keep(const RegionEvent& event) TUTTI_REQUIRES(mutex_);

  Mutex mutex_;
  Record record_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace detail

namespace {

using detail::ThreadLog;

struct Logs {
  std::atomic<std::uint64_t> trace{0};  // odd: under way
  std::atomic<std::size_t> most_events{0};
  std::atomic<void (*)()> drain{nullptr};
  Mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> all TUTTI_GUARDED_BY(mutex);
  struct Lane {
    int id;
    std::shared_ptr<ThreadLog> log;  // in `all` as well
  };
  std::map<std::string, Lane> lanes TUTTI_GUARDED_BY(mutex);
  Clock::time_point begin TUTTI_GUARDED_BY(mutex);
  double wall_clock TUTTI_GUARDED_BY(mutex) = 0;
};

// Never destroyed: threads may end after main() has.
Logs& logs() {
  static Logs* const logs = new Logs;
  return *logs;
}

ThreadLog& log_of_this_thread() {
  thread_local const std::shared_ptr<ThreadLog> mine = [] {
    auto log = std::make_shared<ThreadLog>();
    const MutexLock lock(logs().mutex);
    logs().all.push_back(log);
    return log;
  }();
  return *mine;
}

void add(RegionTotals& to, Duration took, Duration self) {
  to.shortest = to.calls == 0 ? took : std::min(to.shortest, took);
  to.longest = std::max(to.longest, took);
  to.total += took;
  to.self += self;
  ++to.calls;
}

void add(RegionTotals& to, const RegionTotals& from) {
  to.shortest = to.calls == 0 ? from.shortest : std::min(to.shortest, from.shortest);
  to.longest = std::max(to.longest, from.longest);
  to.total += from.total;
  to.self += from.self;
  to.calls += from.calls;
}

// Ends the trace that is under way, if one is: what the logs hold of it. Logs of threads that have ended go.
std::vector<Record> collect(Logs& logs) TUTTI_REQUIRES(logs.mutex) {
  const std::uint64_t trace = logs.trace;
  detail::tracing = false;
  if (trace % 2 == 1) logs.trace = trace + 1;
  std::vector<Record> records;
  for (const auto& log : logs.all) {
    Record record = log->take();
    if (record.trace == trace && trace % 2 == 1) records.push_back(std::move(record));
  }
  std::erase_if(logs.all, [](const auto& log) { return log.use_count() == 1; });
  return records;
}

}  // namespace

std::uint64_t detail::ThreadLog::open(const char* name, std::string detail) {
  const std::uint64_t trace = logs().trace;
  if (trace % 2 == 0) return 0;
  const MutexLock lock(mutex_);
  if (record_.trace != trace) begin_record(trace, {.id = int(::gettid()), .name = name_of_this_thread()});
  record_.open.push_back({.which = which(name, std::move(detail), false), .begin = now()});
  return trace;
}

void detail::ThreadLog::begin_record(std::uint64_t trace, const ThreadEvents& of) {
  record_ = {};
  record_.trace = trace;
  record_.thread = of;
}

std::uint32_t detail::ThreadLog::which(const char* name, std::string detail, bool is_span) {
  const auto [found, fresh] =
      record_.known.try_emplace(Key{name, std::move(detail)}, std::uint32_t(record_.totals.size()));
  if (fresh) record_.totals.push_back({.name = name, .detail = found->first.detail, .is_span = is_span});
  return found->second;
}

void detail::ThreadLog::keep(const RegionEvent& event) {
  if (record_.thread.events.size() < logs().most_events) {
    record_.thread.events.push_back(event);
  } else {
    ++record_.thread.left_out;
  }
}

void detail::ThreadLog::close(std::uint64_t trace) {
  const Clock::time_point end = now();
  const MutexLock lock(mutex_);
  if (record_.trace != trace || record_.open.empty()) return;  // the trace has ended meanwhile
  const OpenRegion region = record_.open.back();
  record_.open.pop_back();
  const Duration took = end - region.begin;
  add(record_.totals[region.which], took, took - region.within);
  if (!record_.open.empty()) record_.open.back().within += took;
  keep({region.which, region.begin.time_since_epoch(), took});
}

void detail::ThreadLog::span(std::uint64_t trace, const ThreadEvents& lane, const char* name, std::string detail,
                             Clock::time_point begin, Duration took) {
  const MutexLock lock(mutex_);
  if (record_.trace != trace) begin_record(trace, lane);
  const auto place = which(name, std::move(detail), true);
  add(record_.totals[place], took, took);
  keep({place, begin.time_since_epoch(), took});
}

void record_span(const std::string& lane, const char* name, std::string detail, Clock::time_point begin,
                 Clock::time_point end) {
  Logs& logs = tutti::logs();
  std::shared_ptr<ThreadLog> log;
  ThreadEvents of{.name = lane};
  std::uint64_t trace = 0;
  {
    const MutexLock lock(logs.mutex);
    trace = logs.trace;
    if (trace % 2 == 0 || begin < logs.begin) return;
    const auto [found, fresh] = logs.lanes.try_emplace(lane);
    if (fresh) {
      found->second = {kFirstLane + int(logs.lanes.size()) - 1, std::make_shared<ThreadLog>()};
      logs.all.push_back(found->second.log);
    }
    of.id = found->second.id;
    log = found->second.log;
  }
  log->span(trace, of, name, std::move(detail), begin, end - begin);
}

void Region::open(const char* name, std::string detail) {
  ThreadLog& log = log_of_this_thread();
  trace_ = log.open(name, std::move(detail));
  if (trace_ != 0) log_ = &log;
}

void Region::close() { log_->close(trace_); }

void start_trace(const TraceOptions& options) {
  Logs& logs = tutti::logs();
  const MutexLock lock(logs.mutex);
  collect(logs);
  logs.most_events = options.most_events;
  logs.begin = now();
  logs.wall_clock = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  ++logs.trace;
  detail::tracing = true;
}

void set_trace_drain(void (*drain)()) { logs().drain = drain; }

Trace stop_trace() {
  Logs& logs = tutti::logs();
  if (void (*const drain)() = logs.drain; drain && is_tracing()) drain();
  const MutexLock lock(logs.mutex);
  if (logs.trace % 2 == 0) return {};
  Trace trace{.begin = logs.begin, .wall_clock = logs.wall_clock, .took = now() - logs.begin};
  std::map<std::tuple<std::string, std::string, bool>, std::uint32_t> known;
  for (Record& record : collect(logs)) {
    std::vector<std::uint32_t> place;  // in trace.totals, of each of the record's
    for (const RegionTotals& totals : record.totals) {
      const auto [found, fresh] =
          known.try_emplace({totals.name, totals.detail, totals.is_span}, std::uint32_t(trace.totals.size()));
      if (fresh) trace.totals.push_back({.name = totals.name, .detail = totals.detail, .is_span = totals.is_span});
      add(trace.totals[found->second], totals);
      place.push_back(found->second);
    }
    for (RegionEvent& event : record.thread.events) {
      event.which = place[event.which];
      event.begin -= trace.begin.time_since_epoch();
    }
    trace.threads.push_back(std::move(record.thread));
  }
  const auto place = [](const ThreadEvents& thread) { return std::pair(thread.name != kMainThread, thread.id); };
  std::sort(trace.threads.begin(), trace.threads.end(),
            [&](const ThreadEvents& a, const ThreadEvents& b) { return place(a) < place(b); });
  return trace;
}

}  // namespace tutti
