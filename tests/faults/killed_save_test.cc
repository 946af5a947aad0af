// A job that is killed by SIGKILL at any system call of its saves goes on from a whole checkpoint, to the state of the
// job that never was. The child is traced: it stops where each call begins and where it ends, and one of those stops is
// its last moment.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "tests/harness/checkpoints.h"
#include "tutti/base/sanitizers.h"
#include "tutti/checkpoint/folder/resume.h"
#include "tutti/checkpoint/io/background_saver.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

constexpr int kNobody = 0x7474;  // no descriptor; closing it says: from here on calls count

struct Ended {
  bool killed = false;
  bool traced = true;  // false: tracing is not allowed here
  int points = 0;      // that were passed
  int code = -1;
};

bool is_mark(pid_t thread) {
  __ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return false;
  return info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_close && info.entry.args[0] == kNobody;
}

// Runs `body` in a child and kills it, with all its threads, at the point of that number (counted from 0); negative:
// never.
Ended run_until(int point, const std::function<void()>& body) {
  Ended ended;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    body();
    ::_exit(0);
  }
  int status = 0;
  bool counting = false, last_seen = false;
  while (!last_seen) {
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0) break;
    if (!WIFSTOPPED(status)) {
      last_seen = thread == child;
      continue;
    }
    const int signal = WSTOPSIG(status);
    int deliver = 0;
    if (signal == (SIGTRAP | 0x80)) {
      if (!counting) {
        counting = is_mark(thread);
      } else if (ended.points++ == point) {
        ended.killed = ::kill(child, SIGKILL) == 0;
        continue;
      }
    } else if (signal == SIGSTOP) {  // the child's own at its start, and that of each new thread
      if (thread == child)
        (void)::ptrace(PTRACE_SETOPTIONS, child, nullptr,
                       PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE);
    } else if (signal != SIGTRAP) {
      deliver = signal;
    }
    (void)::ptrace(PTRACE_SYSCALL, thread, nullptr, deliver);
  }
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ended.traced = ended.code != 77;
  return ended;
}

// A state that tells every step that has been made, in order.
struct State {
  std::int64_t step = 0;
  std::vector<double> small = std::vector<double>(1000, 1), large = std::vector<double>(300000, 2);

  void advance() {
    ++step;
    for (std::size_t i = 0; i < small.size(); ++i) small[i] = small[i] * 1.0009765625 + double(step) / double(i + 3);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = large[i] * 0.9990234375 + double(i % 17) / double(step);
  }
  std::vector<StateBox> boxes() {
    return {{.key = {"small"}, .dtype = DType::kF64, .shape = {small.size()}, .data = small.data()},
            {.key = {"small", "momentum"}, .dtype = DType::kF64, .shape = {small.size()}, .data = small.data()},
            {.key = {"large"}, .dtype = DType::kF64, .shape = {large.size() / 100, 100}, .data = large.data()}};
  }
  void load(const CheckpointReader& saved) {
    step = saved.facts().step;
    saved.read({"small"}, std::as_writable_bytes(std::span(small))).or_throw();
    saved.read({"large"}, std::as_writable_bytes(std::span(large))).or_throw();
  }
  bool operator==(const State&) const = default;
};

State state_after(std::int64_t steps) {
  State state;
  while (state.step < steps) state.advance();
  return state;
}

constexpr std::int64_t kSteps = 5;
const SaveOptions kKeep{.keep = 2};

// The job: goes on from what there is, saves after each step.
void job(const Group& world, const std::string& folder, std::int64_t steps, bool in_background) {
  State state;
  if (const auto saved = resume_point(world, {.folder = folder}).or_throw()) state.load(*saved);
  std::optional<BackgroundSaver> saver;
  if (in_background) saver.emplace(world, folder, kKeep);
  (void)::close(kNobody);
  while (state.step < steps) {
    state.advance();
    if (saver) {
      saver->save(state.boxes(), {.step = state.step}).or_throw();
    } else {
      save_checkpoint(world, folder, state.boxes(), {.step = state.step}, kKeep).or_throw();
    }
  }
  if (saver) saver->finish().or_throw();
}

// In memory, where a thousand flushes cost nothing: what was written by a process that is killed stays written, on any
// disk.
const char* quick_folder() {
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  return "";
}

class KilledSave : public testing::Test {
 protected:
  // A fresh folder in which two steps are saved.
  void begin() {
    fs::remove_all(folder());
    quietly([&] { job(Group(), folder(), 2, false); });
  }
  static void quietly(const std::function<void()>& act) {
    testing::internal::CaptureStderr();
    act();
    (void)testing::internal::GetCapturedStderr();
  }
  static std::function<void()> silent(std::function<void()> body) {
    return [body = std::move(body)] {
      (void)::dup2(::open("/dev/null", O_WRONLY), 2);
      body();
    };
  }
  // Of the steps that may be there, one is; and the job continues to its end.
  void expect_whole(const State& undisturbed, int point) {
    const auto saved = CheckpointReader::open(folder());
    ASSERT_TRUE(saved.ok()) << "killed at " << point << ": " << to_string(saved.error());
    EXPECT_EQ(saved->passed_over().size(), 0u) << "killed at " << point;
    State found;
    found.load(*saved);
    ASSERT_GE(found.step, 2);
    ASSERT_TRUE(found == state_after(found.step)) << "killed at " << point << ", step " << found.step;
    const auto all = list_checkpoints(folder()).or_throw();
    for (const CheckpointFolder& one : all)
      ASSERT_TRUE(CheckpointReader::open(one.path).ok()) << "killed at " << point << ": " << one.path;
    quietly([&] { job(Group(), folder(), kSteps, false); });
    State last;
    last.load(CheckpointReader::open(folder()).or_throw());
    ASSERT_TRUE(last == undisturbed) << "killed at " << point;
    if (found.step == kSteps) return;  // nothing was saved after the kill, so nobody tidied up
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) names.push_back(entry.path().filename().string());
    EXPECT_THAT(names, testing::UnorderedElementsAre("latest", "step-0000004", "step-0000005"))
        << "killed at " << point;
  }
  std::string folder() const { return folder_.path() + "/run"; }
  const std::string quick_ = quick_folder();
  const test::TemporaryFolder folder_;
};

TEST_F(KilledSave, AtEverySystemCall) {
  const State undisturbed = state_after(kSteps);
  const auto body = silent([&] { job(Group(), folder(), kSteps, false); });
  begin();
  const Ended whole = run_until(-1, body);
  if (!whole.traced) GTEST_SKIP() << "a process may not be traced here";
  ASSERT_EQ(whole.code, 0);
  EXPECT_GE(whole.points, 200);
  for (int point = 0; point < whole.points; ++point) {
    begin();
    const Ended ended = run_until(point, body);
#if TUTTI_ASAN || TUTTI_TSAN
    if (!ended.killed && point > whole.points * 9 / 10) return;  // sanitizers make calls of their own, some runs more
#endif
    ASSERT_TRUE(ended.killed) << "at " << point << " of " << whole.points;
    expect_whole(undisturbed, point);
    if (HasFatalFailure()) return;
  }
}

// Threads come to their calls in another order each time, so a share of the points is taken.
void in_two_ranks(const std::string& folder) {
  test::run_threads(2, [&](Group& world) { job(world, folder, kSteps, true); });
}

TEST_F(KilledSave, OfTwoRanksThatSaveInTheBackground) {
  const State undisturbed = state_after(kSteps);
  const auto body = silent([&] { in_two_ranks(folder()); });
  begin();
  const Ended whole = run_until(-1, body);
  if (!whole.traced) GTEST_SKIP() << "a process may not be traced here";
  ASSERT_EQ(whole.code, 0);
  constexpr int kPoints = 60;
  for (int k = 0; k < kPoints; ++k) {
    begin();
    const int point = whole.points * k / kPoints;
    (void)run_until(point, body);  // or it had ended before
    expect_whole(undisturbed, point);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tutti
