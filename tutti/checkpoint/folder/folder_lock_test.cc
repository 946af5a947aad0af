#include "tutti/checkpoint/folder/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/checkpoint/folder/folder.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr FolderWait kShort{.patience = milliseconds(60)};

// A process of its own. `body` gets an end of a pipe: what it writes there read() returns.
class Other {
 public:
  explicit Other(const std::function<void(int tell)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    heard_ = Fd(ends[0]);
  }
  ~Other() { kill(); }
  // Until it has told something, or has ended: then "".
  std::string read() const {
    char text[2000];
    const auto bytes = ::read(heard_.get(), text, sizeof text);
    return std::string(text, bytes > 0 ? std::size_t(bytes) : 0);
  }
  void kill() {
    if (pid_ > 0) (void)::kill(pid_, SIGKILL);
    (void)end();
  }
  int end() {
    int status = 0;
    if (std::exchange(ended_, true) || ::waitpid(pid_, &status, 0) != pid_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd heard_;
  bool ended_ = false;
};

void say(int to, const std::string& text) { (void)!::write(to, text.data(), text.size()); }
[[noreturn]] void stay() {
  for (;;) ::pause();
}

class Folder : public testing::Test {
 protected:
  std::string folder() const { return folder_.path(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder())) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  Other holder(FolderUse use) const {
    return Other([=, this](int tell) {
      const auto mine = FolderLock::take(folder(), use);
      say(tell, mine.ok() ? "has it" : to_string(mine.error()));
      stay();
    });
  }
  std::string refusal(FolderUse use, const FolderWait& wait = kShort) const {
    const auto lock = FolderLock::take(folder(), use, wait);
    return lock.ok() ? "" : to_string(lock.error());
  }
  const test::TemporaryFolder folder_;
};

TEST_F(Folder, OneProcessHoldsTheLockAndOthersGetItsName) {
  Other first = holder(FolderUse::kWriting);
  ASSERT_EQ(first.read(), "has it");
  testing::internal::CaptureStderr();
  const std::string why = refusal(FolderUse::kWriting);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("; waiting for it to end, at most 60 ms"));
  EXPECT_THAT(why, testing::StartsWith("Timeout: " + folder() + " is being written to by checkpoint_job_test (pid " +
                                       std::to_string(first.pid()) + " on "));
  EXPECT_THAT(why, HasSubstr(" UTC); waited 60 ms for it to end (hint: "));
  EXPECT_THAT(why, HasSubstr("try again when that has ended; if there is no such process any more, remove " + folder() +
                             "/.write.lock"));
  EXPECT_EQ(refusal(FolderUse::kJob), "") << "the two uses do not exclude one another";
  first.kill();
  EXPECT_THAT(names(), ElementsAre(".write.lock")) << "what is left by one that was killed";
  EXPECT_EQ(refusal(FolderUse::kWriting), "");
  EXPECT_THAT(names(), ElementsAre()) << "goes with the next";
}

TEST_F(Folder, AJobHasItFromItsStartToItsEnd) {
  Other first([&](int tell) {
    auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
    Checkpointer job(Group(), {.folder = folder()});
    job.add("", mine);
    job.save(1);
    job.finish();
    say(tell, "saved");
    stay();
  });
  ASSERT_EQ(first.read(), "saved");
  Other second([&](int tell) {
    try {
      (void)::freopen("/dev/null", "w", stderr);
      const Checkpointer job(Group(), {.folder = folder()});
      say(tell, "began");
    } catch (const Exception& error) {
      say(tell, std::string(error.what()) + (error.error().code == Code::kUsage ? " [usage]" : ""));
    }
  });
  EXPECT_THAT(second.read(), AllOf(HasSubstr("another job keeps its checkpoints in " + folder() +
                                             ": checkpoint_job_test (pid " + std::to_string(first.pid())),
                                   HasSubstr("give another folder, or end that one first"), HasSubstr("[usage]")));
  EXPECT_EQ(refusal(FolderUse::kWriting), "") << "between its saves others may tidy up";
  first.kill();
  const Checkpointer next(Group(), {.folder = folder()});
  EXPECT_EQ(CheckpointReader::open(folder()).or_throw().facts().step, 1);
}

TEST_F(Folder, WhoDiesIsWaitedFor) {
  Other first = holder(FolderUse::kJob);
  ASSERT_EQ(first.read(), "has it");
  Other second([&](int tell) {
    const auto mine = FolderLock::take(folder(), FolderUse::kJob);
    say(tell, mine.ok() ? "has it" : to_string(mine.error()));
  });
  first.kill();
  EXPECT_EQ(second.read(), "has it");
}

// The attempt before is on a host that was cut off, or it is another job: nobody can tell.
TEST_F(Folder, ARestartedAttemptTakesTheLockFromNoOtherProcess) {
  Other before = holder(FolderUse::kJob);
  ASSERT_EQ(before.read(), "has it");
  const FolderWait restarted{.patience = kShort.patience, .restarted = true};
  const auto refused = FolderLock::take(folder(), FolderUse::kJob, restarted);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kTimeout) << "the launcher tries again";
  EXPECT_THAT(to_string(refused.error()), HasSubstr("(pid " + std::to_string(before.pid())));
  before.kill();
  EXPECT_TRUE(FolderLock::take(folder(), FolderUse::kJob, restarted).ok());
}

// Each takes what the other has under way for a leftover, were there no lock.
TEST_F(Folder, TwoProcessesThatSaveAtOnceTearNothing) {
  constexpr int kSaves = 25;
  const auto saving = [&](int first_step) {
    return [&, first_step](int tell) {
      (void)::freopen("/dev/null", "w", stderr);
      const auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
      for (int i = 0; i < kSaves; ++i)
        if (const Status saved = save_checkpoint(folder(), mine.boxes, {.step = first_step + 2 * i}); !saved.ok())
          say(tell, to_string(saved.error()) + "\n");
    };
  };
  Other even(saving(0)), odd(saving(1));
  EXPECT_EQ(even.read(), "");
  EXPECT_EQ(odd.read(), "");
  const auto found = list_checkpoints(folder()).or_throw();
  EXPECT_EQ(found.size(), std::size_t(2 * kSaves));
  for (const CheckpointFolder& one : found) EXPECT_TRUE(CheckpointReader::open(one.path).ok()) << one.path;
  EXPECT_EQ(names().size(), std::size_t(2 * kSaves + 1)) << "and `latest`";
}

TEST_F(Folder, ASaveThatIsUnderWayIsLeftAlone) {
  Other first([&](int tell) {
    auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
    mine.boxes[2].data = nullptr;
    mine.boxes[2].source = [tell](auto, auto, auto) -> Status {
      say(tell, "writes");
      stay();
    };
    (void)save_checkpoint(folder(), mine.boxes, {.step = 2});
  });
  ASSERT_EQ(first.read(), "writes");
  testing::internal::CaptureStderr();
  EXPECT_THAT(refusal(FolderUse::kWriting), HasSubstr("is being written to by"));
  (void)testing::internal::GetCapturedStderr();
  EXPECT_THAT(names(), ElementsAre(".step-0000002.partial", ".write.lock"));
}

TEST_F(Folder, WhatIsNoLockFileIsNamed) {
  fs::create_symlink("/etc/passwd", folder() + "/.job.lock");
  EXPECT_THAT(refusal(FolderUse::kJob),
              AllOf(HasSubstr("cannot open the lock file " + folder() + "/.job.lock"), HasSubstr("symbolic links")));
  fs::remove(folder() + "/.job.lock");
  std::ofstream(folder() + "/precious") << "text";
  fs::create_hard_link(folder() + "/precious", folder() + "/.job.lock");
  EXPECT_THAT(refusal(FolderUse::kJob), HasSubstr("/.job.lock is a file that has another name as well"));
  EXPECT_EQ(fs::file_size(folder() + "/precious"), 4u) << "not written over";
  fs::create_directory(folder() + "/.write.lock");
  EXPECT_THAT(refusal(FolderUse::kWriting), HasSubstr("cannot open the lock file " + folder() + "/.write.lock"));
}

// Two that take turns are told once each, however often they do.
TEST_F(Folder, EachHolderDuringTheWaitIsReportedOnce) {
  const std::string path = folder() + "/.write.lock";
  const Fd held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::atomic<bool> over{false};
  std::thread turns([&] {
    for (int i = 0; !over; ++i) {
      std::ofstream(path) << "save (pid " << i % 2 << " on here, since turn " << i << ")\n";
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  testing::internal::CaptureStderr();
  (void)refusal(FolderUse::kWriting, {.patience = milliseconds(400)});
  over = true;
  turns.join();
  const std::string said = testing::internal::GetCapturedStderr();
  const auto times = [&](const char* process) {
    int found = 0;
    for (auto at = said.find(process); at != said.npos; at = said.find(process, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(times("(pid 0 on here"), 1) << said;
  EXPECT_EQ(times("(pid 1 on here"), 1) << said;
}

TEST_F(Folder, ALockThatWasRemovedIsNoticed) {
  const auto mine = FolderLock::take(folder(), FolderUse::kJob).or_throw();
  EXPECT_TRUE(mine.still_mine().ok());
  fs::remove(folder() + "/.job.lock");
  EXPECT_THAT(to_string(mine.still_mine().error()),
              AllOf(HasSubstr("the lock file " + folder() + "/.job.lock was removed while this process held it, so"),
                    HasSubstr("a restarted job locks the folder again")));
  Other second = holder(FolderUse::kJob);
  ASSERT_EQ(second.read(), "has it");
  EXPECT_THAT(to_string(mine.still_mine().error()),
              HasSubstr("and it now belongs to checkpoint_job_test (pid " + std::to_string(second.pid()) + " on "));
}

// Training goes on, the alarm counts, what is there stays, and nothing is left behind.
TEST_F(Folder, ASaveOfAJobWhoseLockWasRemovedFails) {
  for (const bool in_background : {true, false}) {
    fs::remove_all(folder() + "/a");
    auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
    Checkpointer job(Group(), {.folder = folder() + "/a", .in_background = in_background});
    job.add("", mine);
    job.save(1);
    job.finish();
    fs::remove(folder() + "/a/.job.lock");
    job.save(2);
    try {
      job.finish();
      FAIL() << "the last save has failed";
    } catch (const Exception& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder() + "/a/.job.lock was removed while this process held it"));
    }
    EXPECT_EQ(job.stats().failed, 1);
    EXPECT_EQ(job.stats().newest, 1);
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(folder() + "/a")) left.push_back(entry.path().filename());
    EXPECT_THAT(left, testing::UnorderedElementsAre("latest", "step-0000001"));
  }
}

// While its files are written: it gets no name.
TEST_F(Folder, ASaveWhoseLockIsRemovedMeanwhileIsNoCheckpoint) {
  for (const char* const lock : {"/.write.lock", "/.job.lock"}) {
    auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
    const auto whole = mine.boxes[2].data;
    const std::size_t row = mine.boxes[2].box.row_elements() * size_of(mine.boxes[2].dtype);
    mine.boxes[2].data = nullptr;
    mine.boxes[2].source = [&](std::uint64_t first, std::uint64_t count, std::byte* into) -> Status {
      std::memcpy(into, static_cast<const std::byte*>(whole) + first * row, count * row);
      fs::remove(folder() + lock);
      return {};
    };
    Checkpointer job(Group(), {.folder = folder(), .in_background = false});
    job.add("", mine);
    job.save(3);
    EXPECT_THAT(job.stats().last_failure, HasSubstr(folder() + lock + " was removed while this process held it"));
    EXPECT_TRUE(list_checkpoints(folder()).or_throw().empty());
    EXPECT_FALSE(fs::exists(folder() + "/.step-0000003.partial"));
  }
}

// As on a mount of NFS without locks: flock() is made to fail.
bool take_flock_away() {
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = 4, .filter = steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(Folder, AFileSystemWithoutLocksIsReportedOnce) {
  Other without([&](int tell) {
    if (!take_flock_away()) return say(tell, "skip");
    (void)::dup2(tell, 2);
    const auto mine = test::rank_model(test::Dealing::kRows, 0, 1);
    for (const int step : {1, 2})
      if (!save_checkpoint(folder(), mine.boxes, {.step = step}).ok()) say(tell, "failed");
  });
  const std::string said = without.read();
  if (said == "skip") GTEST_SKIP() << "seccomp is not to be had here";
  EXPECT_THAT(said, HasSubstr(folder() + " cannot be locked (No locks available): let only one job"));
  EXPECT_EQ(without.read(), "") << "once";
  EXPECT_THAT(names(), ElementsAre("latest", "step-0000001", "step-0000002"));
}

}  // namespace
}  // namespace tutti
