// The file is unlinked before its lock goes, so that none is left behind; whoever has opened it meanwhile gets a lock
// on a file that has no name any more. So a lock counts only while the path still leads to the locked file, and is
// tried anew where it does not.
//
// Only EWOULDBLOCK says that somebody else has it. Any other error of flock() means that the file system has no locks
// (some mounts of NFS and Lustre): then each is told once to see to it, and goes on.
#include "tutti/checkpoint/folder/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <set>
#include <system_error>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr std::size_t kMostOfANote = 400;

enum class Lock { kTaken, kHeldByAnother, kNone };

Lock try_lock(const Fd& file) {
  int locked = 0;
  do locked = ::flock(file.get(), LOCK_EX | LOCK_NB);
  while (locked != 0 && errno == EINTR);
  if (locked == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kNone;
}

bool is_at(const Fd& file, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(file.get(), &held) == 0 && ::lstat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

// What the file says: who has it.
std::string own_note() {
  return fmt::format("{} (pid {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC)\n", program_invocation_short_name, ::getpid(),
                     host_name(), fmt::gmtime(std::time(nullptr)));
}

// Whatever is in it goes to somebody's screen.
std::string read_note(const Fd& file) {
  char text[kMostOfANote];
  const auto bytes = ::pread(file.get(), text, sizeof text, 0);
  const std::string_view all(text, std::size_t(std::max<ssize_t>(bytes, 0)));
  const std::string who = sanitize_line(all.substr(0, all.find('\n')));
  return who.empty() ? "a process that has not written its name yet" : who;
}

// None: there is no room for it, and who makes room must not need some.
Result<Fd> open_lock(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  const int why = errno;
  struct stat info {};
  if (!file && why != ENOSPC && why != EDQUOT) {
    if (::lstat(path.c_str(), &info) != 0)
      return system_error(why, fmt::format("cannot make the file {}", path),
                          "give a folder that this user may write to");
    return system_error(why, fmt::format("cannot open the lock file {}", path),
                        "remove it, if no job of its owner saves to this folder");
  }
  if (file && ::fstat(file.get(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalid_argument(fmt::format("{} is no file", path), "remove it: Tutti makes a lock file there");
  if (file && info.st_nlink > 1)  // it would be written over, and locked for whoever has the other name
    return invalid_argument(fmt::format("{} is a file that has another name as well (a hard link)", path),
                            "remove this one: Tutti makes a new lock file");
  return file;
}

std::string is_held(const std::string& folder, FolderUse use, const std::string& by) {
  if (use == FolderUse::kJob) return fmt::format("another job keeps its checkpoints in {}: {}", folder, by);
  return fmt::format("{} is being written to by {}", folder, by);
}

Error refusal(const std::string& folder, FolderUse use, bool restarted, const std::string& path, const std::string& by,
              const Deadline& deadline) {
  Error error{
      .code = Code::kTimeout,
      .detail = fmt::format("{}; waited {} for it to end", is_held(folder, use, by), seconds_text(deadline.limit()))};
  // Starting it again would not help, unless the one that has the folder is an attempt of this job that still dies.
  if (use == FolderUse::kJob && !restarted) error.code = Code::kUsage;
  error.hint =
      use == FolderUse::kJob
          ? fmt::format("give another folder, or end that one first; if there is no such process any more, remove {}",
                        path)
          : fmt::format("try again when that has ended; if there is no such process any more, remove {}", path);
  return error;
}

// The process that a note is of, without the moment.
std::string process_of(const std::string& note) { return note.substr(0, note.find(", since")); }

void warn_without(const std::string& folder, const std::string& why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log::warn(
        fmt::format("{} cannot be locked ({}): let only one job at a time save there, and let nothing else "
                    "remove or write checkpoints there",
                    folder, why));
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder, FolderUse use, const FolderWait& wait) {
  const std::string path = folder + (use == FolderUse::kJob ? "/.job.lock" : "/.write.lock");
  const Deadline deadline = Deadline::after(wait.patience);
  for (std::set<std::string> told;;) {  // of which processes
    Fd file = TUTTI_TRY(open_lock(path));
    if (!file) {
      warn_without(folder, "there is no room for a file");
      return FolderLock(Fd(), path);
    }
    const Lock lock = try_lock(file);
    if (lock == Lock::kNone) {
      warn_without(folder, std::system_category().message(errno));
      (void)::unlink(path.c_str());
      return FolderLock(Fd(), path);
    }
    if (lock == Lock::kTaken && is_at(file, path)) {
      const std::string note = own_note();  // for people: a full disk keeps it from nobody
      if (::ftruncate(file.get(), 0) == 0) (void)write_all(file.get(), std::as_bytes(std::span(note)), path);
      return FolderLock(std::move(file), path);
    }
    const std::string by = read_note(file);
    if (deadline.expired()) return refusal(folder, use, wait.restarted, path, by, deadline);
    if (told.insert(process_of(by)).second)
      log::info(fmt::format("{}; waiting for it to end, at most {}", is_held(folder, use, by),
                            seconds_text(deadline.limit())));
    std::this_thread::sleep_for(kLookAgain);  // flock() has no deadline
  }
}

Status FolderLock::still_mine() const {
  if (!file_ || is_at(file_, path_)) return {};
  const Fd there(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return invalid_argument(fmt::format("the lock file {} was removed while this process held it, {}", path_,
                                      there ? "and it now belongs to " + read_note(there)
                                            : "so another process may be writing to the folder"),
                          "let only one job at a time save there; a restarted job locks the folder again");
}

FolderLock::~FolderLock() {
  if (file_ && is_at(file_, path_)) (void)::unlink(path_.c_str());
}

}  // namespace tutti
