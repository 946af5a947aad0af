// Everything lies in memory that outlives the rank: a process that is killed leaves its last words where they were.
// The file grows by the rings of one group at a time and is sparse, so a rank with a few groups pays for a few.
#include "tutti/trace/progress/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "tutti/base/file.h"
#include "tutti/trace/flight/dump.h"
#include "tutti/trace/flight/ring.h"

namespace tutti::trace {
namespace {

template <class T>
void put(T& word, T value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<T>(word).store(value, order);
}

template <class T>
T look(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

// As much of a text as there is room for; always ends.
template <std::size_t N>
std::size_t copy_text(char (&into)[N], std::string_view text) {
  const std::size_t size = std::min(text.size(), N - 1);
  std::memcpy(into, text.data(), size);
  into[size] = '\0';
  return size;
}

Result<Mapping> map(int fd, std::uint64_t offset, std::size_t bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, off_t(offset));
  if (memory == MAP_FAILED) return system_error(errno, "could not map the progress page");
  return Mapping(memory, bytes);
}

std::uint64_t rings_of(int index, std::uint64_t ring_bytes) {
  return ProgressLayout::kRingsBegin + std::uint64_t(index) * 2 * ring_bytes;
}

}  // namespace

Result<Fd> ProgressPage::create() {
  Fd fd(::memfd_create("tutti-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::uint64_t magic = ProgressLayout::kMagic;
  if (!may_grow_to(ProgressLayout::kRingsBegin))
    return Error{.code = Code::kLimit, .detail = "files may not have 64 KiB", .hint = "raise ulimit -f"};
  if (!fd || ::ftruncate(fd.get(), ProgressLayout::kRingsBegin) != 0 ||
      ::pwrite(fd.get(), &magic, sizeof magic, 0) != sizeof magic || ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return system_error(errno, "could not make a progress page");
  return fd;
}

Result<std::unique_ptr<ProgressPage>> ProgressPage::open(int fd) {
  std::uint64_t magic = 0;
  struct stat facts {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || ::fstat(fd, &facts) != 0 ||
      facts.st_size < off_t(ProgressLayout::kRingsBegin) || ::pread(fd, &magic, sizeof magic, 0) != sizeof magic ||
      magic != ProgressLayout::kMagic) {
    return Error{.code = Code::kMismatch,
                 .detail = "descriptor " + std::to_string(fd) + " is not a progress page of this version of tutti"};
  }
  Fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return system_error(errno, "could not map the progress page");
  Mapping memory = TUTTI_TRY(map(own.get(), 0, ProgressLayout::kRingsBegin));
  return std::unique_ptr<ProgressPage>(new ProgressPage(std::move(own), std::move(memory)));
}

Result<std::unique_ptr<ProgressPage>> ProgressPage::make_private() {
  Mapping memory = TUTTI_TRY(map(-1, 0, ProgressLayout::kRingsBegin));
  return std::unique_ptr<ProgressPage>(new ProgressPage(Fd(), std::move(memory)));
}

ProgressPage::ProgressPage(Fd fd, Mapping memory)
    : fd_(std::move(fd)), memory_(std::move(memory)), layout_(reinterpret_cast<ProgressLayout*>(memory_.data())) {}

ProgressPage::~ProgressPage() = default;

void ProgressPage::join(int rank, int world_size) {
  MutexLock lock(mutex_);
  ProgressLayout& l = *layout_;
  put(l.joined, 0u);
  put(l.lost, 0u);
  put(l.echoes, 0u);
  put(l.steps, std::uint64_t(0));
  put(l.message_size, 0u);
  put(l.alarm_size, 0u);
  put(l.ring_entries, std::uint64_t(0));
  for (ProgressLayout::Group& group : l.groups) put(group.state, 0u);
  put(l.exact_clock, std::uint32_t(FlightClock().is_exact()));
  put(l.rank, std::int32_t(rank));
  put(l.world_size, std::int32_t(world_size));
  put(l.pid, std::int32_t(::getpid()), std::memory_order_release);
}

void ProgressPage::set_called() { put(layout_->called, 1u); }
void ProgressPage::set_joined() { put(layout_->joined, 1u); }
void ProgressPage::set_lost(int rank) { put(layout_->lost, std::uint32_t(rank) + 1); }
void ProgressPage::set_echoes() { put(layout_->echoes, 1u); }

void ProgressPage::begin_step(std::int64_t step) {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  put(layout_->step, step);
  put(layout_->step_began, std::int64_t(at.tv_sec) * 1000000000 + at.tv_nsec);
  std::atomic_ref(layout_->steps).fetch_add(1, std::memory_order_release);
}

std::int64_t ProgressPage::step() const { return look(layout_->steps) ? look(layout_->step) : -1; }

int ProgressPage::stop_request() const { return int(look(layout_->stop_request)); }

void ProgressPage::request_stop(int signal) { put(layout_->stop_request, std::uint32_t(signal)); }

void ProgressPage::set_message(std::string_view text) {
  const std::size_t size = copy_text(layout_->message, text);
  put(layout_->message_size, std::uint32_t(size), std::memory_order_release);
}

void ProgressPage::set_alarm(std::string_view text) {
  MutexLock lock(mutex_);
  put(layout_->alarm_size, 0u, std::memory_order_release);
  const std::size_t size = copy_text(layout_->alarm, text);
  put(layout_->alarm_size, std::uint32_t(size), std::memory_order_release);
}

std::unique_ptr<ProgressPage::GroupSlot> ProgressPage::add(const FlightGroup& group, std::size_t ring_bytes) {
  if (!fd_) return nullptr;
  MutexLock lock(mutex_);
  if (look(layout_->ring_entries) == 0) ring_bytes_ = ring_bytes;
  if (ring_bytes != ring_bytes_ || ring_bytes % std::size_t(::sysconf(_SC_PAGESIZE)) != 0) return nullptr;
  int index = 0;
  while (index < ProgressLayout::kGroups && look(layout_->groups[index].state) != 0) ++index;
  if (index == ProgressLayout::kGroups) return nullptr;

  const std::uint64_t begin = rings_of(index, ring_bytes), end = rings_of(index + 1, ring_bytes);
  struct stat facts {};
  if (::fstat(fd_.get(), &facts) != 0) return nullptr;
  // The rings of a group that was here before are emptied; what a hole holds reads as zero.
  if (facts.st_size > off_t(begin))
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(begin), off_t(end - begin));
  if (facts.st_size < off_t(end) && !may_grow_to(end)) return nullptr;
  if (facts.st_size < off_t(end) && ::ftruncate(fd_.get(), off_t(end)) != 0) return nullptr;
  Mapping rings[2];
  for (int which = 0; which < 2; ++which) {
    auto ring = map(fd_.get(), begin + std::uint64_t(which) * ring_bytes, ring_bytes);
    if (!ring.ok()) return nullptr;
    rings[which] = *std::move(ring);
  }
  ProgressLayout::Group& place = layout_->groups[index];
  put(place.newest[0], std::uint64_t(0));
  put(place.newest[1], std::uint64_t(0));
  place.rank = group.rank;
  place.size = std::int32_t(group.global_ranks.size());
  place.id = group.id;
  copy_text(place.name, group.name);
  put(layout_->ring_entries, std::uint64_t(ring_bytes / 64));
  put(place.state, 1u, std::memory_order_release);
  return std::make_unique<GroupSlot>(*this, index, rings);
}

void ProgressPage::release(int index) {
  MutexLock lock(mutex_);
  put(layout_->groups[index].state, 0u);
}

void ProgressPage::GroupSlot::left() { put(page_.layout_->groups[index_].state, 2u); }

}  // namespace tutti::trace
