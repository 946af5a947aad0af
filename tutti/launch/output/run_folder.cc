// A lock says whether a run is alive: the kernel gives it back however an agent ends, while a process number may belong
// to somebody else by now, or to another host. Whoever wants the folder locks .claim, looks at .run, and either joins
// (the same run), moves the folder away (nobody holds .run) or is refused. A folder that has been moved while this one
// waited for .claim is not the one that stands at the path any more, so it begins anew.
//
// A file system without locks (some mounts of NFS) counts as one where nobody is alive but who has the same word.
#include "tutti/launch/output/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(10);  // with others that look at the folder, each for milliseconds
constexpr auto kLookAgain = std::chrono::milliseconds(10);
constexpr std::uint64_t kMostOfANote = 4096;
constexpr int kMostOfASecond = 1000;  // runs that began in it

enum class Lock { kTaken, kHeldByAnother, kNone };

Lock try_lock(const Fd& file, int kind) {
  if (::flock(file.get(), kind | LOCK_NB) == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kNone;
}

// The user's mistake, unless the machine is short of what any place needs.
Error not_there(Error error) {
  static constexpr int kOfTheMachine[] = {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM};
  if (std::ranges::find(kOfTheMachine, error.errno_value) == std::end(kOfTheMachine)) error.code = Code::kUsage;
  error.detail = "--log-dir: " + error.detail;
  if (error.hint.empty()) error.hint = "choose another --log-dir";
  return error;
}

Result<Fd> open_in(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return not_there(system_error(errno, "cannot write " + path));
  return file;
}

bool is_at(const Fd& file, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

// The lock on .claim of the folder that stands at the path.
Result<Fd> lock_claim(const std::string& folder) {
  const Deadline deadline = Deadline::after(kPatience);
  for (;;) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)  // whose word does not say what is in the way
      if (const Status made = make_folder(folder); !made) return not_there(made.error());
    auto file = open_in(folder, ".claim");
    if (!file.ok() && file.error().errno_value != ENOENT) return file;  // else it has just been moved
    const Lock lock = file.ok() ? try_lock(*file, LOCK_EX) : Lock::kHeldByAnother;
    if (lock != Lock::kHeldByAnother && is_at(*file, folder + "/.claim")) return file;
    if (deadline.expired())
      return deadline.error("the log folder " + folder + " is locked", "who has it? fuser " + folder + "/.claim");
    std::this_thread::sleep_for(kLookAgain);  // flock() has no deadline
  }
}

// .run: the word of the run, and for people who has begun it.
struct Note {
  std::string run, began_by;
};

Note read_note(const std::string& folder) {
  const auto text = read_file(folder + "/.run", kMostOfANote);
  if (!text.ok()) return {};
  const auto end = text->find('\n');
  if (end == std::string::npos) return {};
  return {.run = text->substr(0, end), .began_by = text->substr(end + 1, text->find('\n', end + 1) - end - 1)};
}

bool has_logs(const std::string& folder) {
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error))
    if (at->path().filename() != ".claim" && at->path().filename() != ".run") return true;
  return false;
}

// "JOB.20261121-160312", by the time at which its run began, as far as the folder tells.
Result<std::string> move_away(const std::string& folder) {
  struct stat info {};
  if (::stat((folder + "/.run").c_str(), &info) != 0 && ::stat(folder.c_str(), &info) != 0)
    return system_error(errno, "cannot look at the log folder " + folder);
  std::tm local{};
  localtime_r(&info.st_mtime, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  for (int number = 1; number < kMostOfASecond; ++number) {
    const std::string path = folder + "." + stamp + (number == 1 ? "" : "-" + std::to_string(number));
    std::error_code error;
    if (fs::exists(path, error)) continue;
    fs::rename(folder, path, error);
    if (!error) return path;
    return system_error(error.value(), "cannot move the logs of an earlier job from " + folder + " to " + path,
                        "choose another --log-dir, or another --job-id");
  }
  return Error{.code = Code::kLimit, .detail = "too many runs left logs beside " + folder + " in one second"};
}

}  // namespace

Result<RunFolder> RunFolder::claim(const std::string& log_dir, const std::string& job, const std::string& run) {
  const std::string folder = log_dir + "/" + job;
  std::string moved_to;
  for (;;) {
    const Fd claim = TUTTI_TRY(lock_claim(folder));
    Fd held = TUTTI_TRY(open_in(folder, ".run"));
    const Note note = read_note(folder);
    const bool ours = !run.empty() && note.run == run;
    const Lock lock = ours ? Lock::kNone : try_lock(held, LOCK_EX);
    if (!ours && lock == Lock::kHeldByAnother && !run.empty())
      return Error{.code = Code::kUsage,
                   .detail = "another job of the name " + job + " is running and has its logs in " + folder + " (" +
                             note.began_by + ")",
                   .hint = "give this one another --job-id, or another --log-dir"};
    const bool left_behind = !ours && lock != Lock::kHeldByAnother && has_logs(folder);
    if (left_behind) {
      moved_to = TUTTI_TRY(move_away(folder));
      continue;
    }
    if (!ours && lock != Lock::kHeldByAnother)
      TUTTI_TRY(
          write_file(folder + "/.run", run + "\npid " + std::to_string(::getpid()) + " on " + host_name() + "\n"));
    (void)::flock(held.get(), LOCK_SH);  // never waits: nobody else has .claim, and a file system may have no locks
    return RunFolder(std::move(held), std::move(moved_to));
  }
}

}  // namespace tutti
