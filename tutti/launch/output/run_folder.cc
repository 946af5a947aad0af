// A lock says whether a run is alive: the kernel releases it however an agent ends, while a pid may belong to another
// process by now, or to another host. An agent that wants the folder locks .claim, reads .run, and then joins (the same
// run), moves the folder away (no process holds .run), or is refused. If the folder was moved while the agent waited
// for .claim, its lock is on a folder that is no longer at the path, so it starts again.
//
// On a file system without locks (some mounts of NFS) only agents of the same run count as alive.
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

namespace tutti::launch {
namespace {

namespace fs = std::filesystem;

constexpr auto kClaimLimit = std::chrono::seconds(10);  // for other agents, each of which holds .claim for milliseconds
constexpr auto kClaimTurn = std::chrono::milliseconds(10);
constexpr std::uint64_t kMostRunFile = 4096;
constexpr int kMostInASecond = 1000;  // runs that began in one second

enum class Lock { kTaken, kHeldByAnother, kNone };

Lock try_lock(const Fd& file, int kind) {
  if (::flock(file.get(), kind | LOCK_NB) == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kNone;
}

// The user's mistake, unless the machine lacks what any folder needs.
Error folder_error(Error error) {
  static constexpr int kOfTheMachine[] = {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM};
  if (std::ranges::find(kOfTheMachine, error.errno_value) == std::end(kOfTheMachine)) error.code = Code::kUsage;
  error.detail = "--log-dir: " + error.detail;
  if (error.hint.empty()) error.hint = "choose another --log-dir";
  return error;
}

Result<Fd> open_in(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return folder_error(system_error(errno, "cannot write " + path));
  return file;
}

bool is_at(const Fd& file, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

// The lock on .claim of the folder at the path.
Result<Fd> lock_claim(const std::string& folder) {
  const Deadline deadline = Deadline::after(kClaimLimit);
  for (;;) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)  // make_folder() says what is in the way
      if (const Status made = make_folder(folder); !made) return folder_error(made.error());
    auto file = open_in(folder, ".claim");
    if (!file.ok() && file.error().errno_value != ENOENT) return file;  // else it has just been moved
    const Lock lock = file.ok() ? try_lock(*file, LOCK_EX) : Lock::kHeldByAnother;
    if (lock != Lock::kHeldByAnother && is_at(*file, folder + "/.claim")) return file;
    if (deadline.expired())
      return deadline.error("the log folder " + folder + " is locked",
                            "which process holds it? fuser " + folder + "/.claim");
    std::this_thread::sleep_for(kClaimTurn);  // flock() has no deadline
  }
}

// The file .run: the run's identifier, and for people which process began it.
struct RunFile {
  std::string run, began_by;
};

RunFile read_run_file(const std::string& folder) {
  const auto text = read_file(folder + "/.run", kMostRunFile);
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

// Renames it to "JOB.20261121-160312", by the time at which its run began.
Result<std::string> move_away(const std::string& folder) {
  struct stat info {};
  if (::stat((folder + "/.run").c_str(), &info) != 0 && ::stat(folder.c_str(), &info) != 0)
    return system_error(errno, "cannot look at the log folder " + folder);
  std::tm local{};
  localtime_r(&info.st_mtime, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  for (int number = 1; number < kMostInASecond; ++number) {
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

std::string attempt_folder(const std::string& log_dir, const std::string& job, int round) {
  return log_dir + "/" + job + "/attempt_" + std::to_string(round);
}

Result<std::string> make_rank_folder(const std::string& attempt, int rank) {
  const std::string folder = attempt + "/rank_" + std::to_string(rank);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return system_error(error.value(), "cannot make the log folder " + folder, "choose another --log-dir");
  return folder;
}

Result<RunFolder> RunFolder::claim(const std::string& log_dir, const std::string& job, const std::string& run) {
  const std::string folder = log_dir + "/" + job;
  std::string moved_to;
  for (;;) {
    const Fd claim = TUTTI_TRY(lock_claim(folder));
    Fd held = TUTTI_TRY(open_in(folder, ".run"));
    const RunFile file = read_run_file(folder);
    const bool ours = !run.empty() && file.run == run;
    const Lock lock = ours ? Lock::kNone : try_lock(held, LOCK_EX);
    if (!ours && lock == Lock::kHeldByAnother && !run.empty())
      return Error{.code = Code::kUsage,
                   .detail = "another job of the name " + job + " is running and has its logs in " + folder + " (" +
                             file.began_by + ")",
                   .hint = "give this one another --job-id, or another --log-dir"};
    const bool left_behind = !ours && lock != Lock::kHeldByAnother && has_logs(folder);
    if (left_behind) {
      moved_to = TUTTI_TRY(move_away(folder));
      continue;
    }
    if (!ours && lock != Lock::kHeldByAnother)
      TUTTI_TRY(
          write_file(folder + "/.run", run + "\npid " + std::to_string(::getpid()) + " on " + host_name() + "\n"));
    (void)::flock(held.get(), LOCK_SH);  // never waits: this agent holds .claim; a file system may have no locks
    return RunFolder(std::move(held), std::move(moved_to));
  }
}

}  // namespace tutti::launch
