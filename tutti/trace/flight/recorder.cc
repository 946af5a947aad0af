// One ring for each group and not one for the rank: the group's sequence number then finds the slot, so recording takes
// no counter that several threads share, which would cost a small call as much as all the rest of the record; and a
// group that is always busy does not push out the last words of one that is seldom used, which is the one that hangs.
#include "tutti/trace/flight/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tutti/base/clock.h"
#include "tutti/base/machine.h"
#include "tutti/trace/flight/dump.h"

namespace tutti::trace {
namespace {

constexpr std::size_t kLeftGroups = 8;        // how many destroyed groups to keep
constexpr std::size_t kLastOfEachGroup = 64;  // operations that are reported of each group, however old
constexpr std::size_t kMostReasons = 8;
constexpr std::size_t kLongestName = 512;  // of a source file

// The name of a source file lies in the program, or in a library that may have been unloaded since: read it as the
// kernel does, which says so instead of crashing.
class Names {
 public:
  Names() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) read_ = Fd(ends[0]), write_ = Fd(ends[1]);
  }
  const std::string& at(const char* file) {
    const auto [known, fresh] = known_.try_emplace(file);
    if (fresh && file && write_) known->second = copy(file);
    return known->second;
  }

 private:
  std::string copy(const char* file) const {
    const auto page = std::uintptr_t(::sysconf(_SC_PAGESIZE));
    std::string text;
    for (const char* at = file; text.size() < kLongestName; ++at) {
      if ((at == file || reinterpret_cast<std::uintptr_t>(at) % page == 0) && !is_readable(at)) return {};
      if (*at == '\0') break;
      text += *at;
    }
    return text;
  }
  // The page of that byte: the kernel reads it.
  bool is_readable(const char* byte) const {
    char echo;
    return ::write(write_.get(), byte, 1) == 1 && ::read(read_.get(), &echo, 1) == 1;
  }

  Fd read_, write_;
  std::map<const char*, std::string> known_;
};

FlightOperation::State state_of(FlightState state) {
  switch (state) {
    case FlightState::kBeingWritten:
    case FlightState::kScheduled:
      return FlightOperation::State::kScheduled;
    case FlightState::kStarted:
      return FlightOperation::State::kStarted;
    case FlightState::kCompleted:
    case FlightState::kCompletedAtOnce:
      return FlightOperation::State::kCompleted;
    case FlightState::kFailed:
      return FlightOperation::State::kFailed;
  }
  return FlightOperation::State::kStarted;
}

std::int64_t began(const FlightOperation& o) { return o.scheduled ? o.scheduled : o.started; }

double seconds_of_day() {
  timespec at{};
  ::clock_gettime(CLOCK_REALTIME, &at);
  return double(at.tv_sec) + double(at.tv_nsec) * 1e-9;
}

}  // namespace

FlightRecorder::FlightRecorder(Options options, Describe describe)
    : options_([&] {
        if (options.folder.empty()) options.folder = default_flight_folder(options.job);
        return std::move(options);
      }()),
      describe_(describe) {}

void FlightRecorder::put_older_record_aside() const {
  if (!is_own_flight_folder(options_.folder)) return;
  const std::string path = options_.folder + "/" + flight_file_name(options_.rank);
  const std::string aside = path.substr(0, path.rfind('.')) + ".previous.json";
  (void)::rename(path.c_str(), aside.c_str());  // as a rule there is none
}

std::shared_ptr<FlightTrack> FlightRecorder::add(FlightGroup group) {
  auto place = options_.page ? options_.page->add(group, FlightRing::bytes_for(options_.entries)) : nullptr;
  auto track = place ? std::make_shared<FlightTrack>(std::move(group), std::move(place), clock_)
                     : std::make_shared<FlightTrack>(std::move(group), options_.entries, clock_);
  MutexLock lock(mutex_);
  auto left = std::count_if(tracks_.begin(), tracks_.end(), [](const auto& t) { return t->left.load(); });
  std::erase_if(tracks_, [&](const auto& t) { return t->left.load() && left-- > std::ptrdiff_t(kLeftGroups); });
  tracks_.push_back(track);
  return track;
}

FlightDump FlightRecorder::snapshot() const {
  FlightDump dump{.job = options_.job,
                  .rank = options_.rank,
                  .world_size = options_.world_size,
                  .host = host_name(),
                  .pid = ::getpid(),
                  .written = wall_clock_text(),
                  .wall = seconds_of_day()};
  const FlightClock::Scale scale = clock_.scale();
  dump.monotonic = scale.now();
  std::vector<std::shared_ptr<FlightTrack>> tracks;
  {
    MutexLock lock(mutex_);
    tracks = tracks_;
  }
  Names names;
  std::vector<FlightOperation> must, may;
  for (const auto& track : tracks) {
    const int place = int(dump.groups.size());
    dump.groups.push_back(track->group);
    dump.groups.back().left = track->left.load();
    for (const bool exchange : {false, true}) {
      const auto entries = (exchange ? track->exchanges : track->collectives).newest(options_.entries);
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const FlightEntry& e = entries[i];
        FlightOperation o{.group = place, .exchange = exchange, .sequence = e.sequence, .state = state_of(e.state)};
        describe_(e.call, o);
        if (const std::string& file = names.at(e.call.site.file()); !file.empty())
          o.site = file + ":" + std::to_string(e.call.site.line());
        const auto time = [&](std::uint64_t ticks) { return ticks ? scale.monotonic(ticks) : 0; };
        o.scheduled = time(e.scheduled), o.started = time(e.started), o.ended = time(e.ended);
        (entries.size() - i <= kLastOfEachGroup ? must : may).push_back(std::move(o));
      }
    }
  }
  const auto by_time = [](const FlightOperation& a, const FlightOperation& b) { return began(a) < began(b); };
  std::stable_sort(may.begin(), may.end(), by_time);
  const std::size_t room = options_.entries > must.size() ? options_.entries - must.size() : 0;
  if (may.size() > room) may.erase(may.begin(), may.end() - std::ptrdiff_t(room));
  dump.operations = std::move(may);
  std::move(must.begin(), must.end(), std::back_inserter(dump.operations));
  std::stable_sort(dump.operations.begin(), dump.operations.end(), by_time);
  return dump;
}

Result<std::string> FlightRecorder::write(Why why, const std::string& reason) {
  MutexLock lock(writing_);
  failed_ |= why == Why::kFailure;
  if (reasons_.size() < kMostReasons) reasons_.push_back(reason);
  FlightDump dump = snapshot();
  dump.reasons = reasons_;
  dump.failed = failed_;
  return write_flight_dump(dump, options_.folder);
}

}  // namespace tutti::trace
