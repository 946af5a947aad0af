// tutti::spawn(): ranks from inside a program. gtest's own process has one thread, so it may call it.
#include "tutti/launch/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "tests/launch/running.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& error) {
    return error.what();
  }
  return "(no error)";
}

class Spawn : public ::testing::Test {
 protected:
  Spawn() { setenv("TUTTI_FLIGHT_DIR", flight_.path().c_str(), 1); }

 private:
  const testing::Folder flight_;
};

// Numbers that the ranks and the test share.
struct Shared {
  std::atomic<int> sum[8];
};
Shared* shared() {
  return static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

TEST_F(Spawn, RanksMeetAndAddUp) {
  for (const int ranks : {1, 2, 3}) {
    Shared* const seen = shared();
    spawn(ranks, [&](int rank) {
      const Group world = init();
      if (world.rank() != rank || world.size() != ranks) throw std::logic_error("not the rank that was said");
      seen->sum[rank] = all_reduce(world, rank + 1);
    });
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(seen->sum[rank], ranks * (ranks + 1) / 2);
    munmap(seen, sizeof *seen);
  }
}

TEST_F(Spawn, TheFirstErrorStopsTheOthersAndIsThrown) {
  EXPECT_THAT(error_of([] {
                spawn(3, [](int rank) {
                  const Group world = init();
                  (void)all_reduce(world, 1);
                  if (rank == 1) throw std::runtime_error("the loss is NaN");
                  for (;;) (void)all_reduce(world, 1);  // loses rank 1, which is only an echo
                });
              }),
              AllOf(HasSubstr("rank 1: the loss is NaN"), Not(HasSubstr("rank 0:"))));
}

TEST_F(Spawn, ARankThatIsKilledIsNamed) {
  EXPECT_THAT(error_of([] {
                spawn(2, [](int rank) {
                  const Group world = init();
                  (void)all_reduce(world, 1);
                  if (rank == 1) raise(SIGKILL);
                  for (;;) (void)all_reduce(world, 1);
                });
              }),
              AllOf(HasSubstr("rank 1 (pid "), HasSubstr("was killed by SIGKILL")));
  EXPECT_THAT(error_of([] { spawn(2, [](int rank) { rank == 0 ? _exit(7) : (void)pause(); }); }),
              HasSubstr("rank 0 (pid "));
}

// The kernel then reaps the ranks itself, and nobody is told how they ended.
TEST_F(Spawn, AProgramThatIgnoresItsChildrenMaySpawn) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(error_of([] { spawn(2, [](int) {}); }), "(no error)");
  EXPECT_THAT(error_of([] { spawn(2, [](int rank) { rank == 1 ? (void)raise(SIGKILL) : (void)pause(); }); }),
              HasSubstr("was killed by SIGKILL"));
  EXPECT_EQ(error_of([] {
              spawn(1, [](int) {
                if (signal(SIGCHLD, SIG_DFL) != SIG_IGN) throw std::logic_error("not what the program had");
              });
            }),
            "(no error)");
  EXPECT_EQ(signal(SIGCHLD, before), SIG_IGN) << "it is as the program had it";
}

TEST_F(Spawn, WithoutDescriptorsLeftTheEndsAreSeen) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  const int free_one = dup(0);
  close(free_one);
  few.rlim_cur = rlim_t(free_one) + 4;  // the secret, the pipe, and one of the two ranks
  setrlimit(RLIMIT_NOFILE, &few);
  const auto error = error_of([] { spawn(2, [](int rank) { rank == 1 ? (void)raise(SIGKILL) : (void)pause(); }); });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(error, HasSubstr("was killed by SIGKILL"));
}

TEST_F(Spawn, WhoDoesNotListenToSigtermIsKilled) {
  const auto error = error_of([] {
    spawn(2,
          [](int rank) {
            signal(SIGTERM, SIG_IGN);
            if (rank == 0) throw std::runtime_error("enough");
            for (;;) pause();
          },
          {.grace = std::chrono::milliseconds(100)});
  });
  EXPECT_THAT(error, HasSubstr("rank 0: enough"));
}

#if !TUTTI_TSAN  // which starts a thread in a forked process
// Nobody has the time to tidy up then; so there must be nothing.
TEST_F(Spawn, AProgramThatIsKilledLeavesNothing) {
  for (const bool all_come : {false, true}) {
    const testing::Folder temporary;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t program = fork();
    if (program == 0) {
      for (const char* name : {"TMPDIR", "XDG_RUNTIME_DIR"}) setenv(name, temporary.path().c_str(), 1);
      spawn(3, [&](int rank) {
        if (rank == 2 && !all_come) pause();
        if (rank == 0 && !all_come) (void)!write(ends[1], "!", 1);  // about to wait for rank 2
        const Group world = init();
        if (rank == 0) (void)!write(ends[1], "!", 1);
        pause();
      });
    }
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    kill(program, SIGKILL);
    EXPECT_EQ(waitpid(program, nullptr, 0), program);
    EXPECT_EQ(read(ends[0], &byte, 1), 0) << "the ranks have ended, too";
    close(ends[0]);
    EXPECT_TRUE(std::filesystem::is_empty(temporary.path())) << (all_come ? "met" : "meeting");
  }
}
#endif

TEST_F(Spawn, RefusesToForkAProcessWithThreads) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) std::this_thread::yield();
  });
  EXPECT_THAT(error_of([] { spawn(2, [](int) {}); }), AllOf(ContainsRegex("this process has [0-9] threads already"),
                                                            HasSubstr("or start the program with tutti run")));
  done = true;
  other.join();
  EXPECT_THAT(error_of([] { spawn(0, [](int) {}); }), HasSubstr("spawn() was asked for 0 ranks; 1 to 4096 can be had"));
  EXPECT_THAT(error_of([] { spawn(1000000, [](int) {}); }),
              HasSubstr("spawn() was asked for 1000000 ranks; 1 to 4096"));
}

}  // namespace
}  // namespace tutti
