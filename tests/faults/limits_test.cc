// Machines that give little: a full heap, few open files, a small /dev/shm. Each is a sentence that says what to do, or
// no trouble at all.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void sum_of_ones(const Group& world, std::size_t count) {
  std::vector<float> values(count, 1.0f);
  all_reduce(world, std::span(values));
  check(values.front() == float(world.size()) && values.back() == float(world.size()), "a wrong sum");
}

TEST(Limits, AFullHeapSaysHowToGetMoreAndTheGroupContinues) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const auto memory = world.allocate(std::size_t(256) << 20);
        const std::string text = memory.ok() ? "" : to_string(memory.error());
        const std::string who = "Limit: allocate on group world, rank " + std::to_string(world.rank()) + ": ";
        check(text.find(who + "cannot grow the shared heap by 256 MiB") != std::string::npos &&
                  text.find("the limit is 32 MiB, in steps of 2 MiB; TUTTI_HEAP_LIMIT=64G sets another") !=
                      std::string::npos,
              text);
        sum_of_ones(world, 1 << 20);  // of private memory, through chunks that the heap has room for
      },
      {.environment = {{"TUTTI_HEAP_LIMIT", "32M"}}});
  EXPECT_EQ(describe(outcomes), "");
}

// Called in the process of the rank, before it joins.
std::map<std::string, std::string> with_open_files(rlim_t most) {
  const rlimit limit{most, most};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
  return {};
}

TEST(Limits, FewOpenFilesAreASentence) {
  const auto enough = run_processes(4, [](Group& world) { sum_of_ones(world, 1000); },
                                    {.environment_of = [](int) { return with_open_files(64); }});
  EXPECT_EQ(describe(enough), "") << "four ranks of a host get along with 64";
  const auto body = [](Group& world) { sum_of_ones(world, 1000); };
  const WorldOptions options{.transport = "tcp",
                             .environment = {{"TUTTI_STREAMS", "16"}, {"TUTTI_JOIN_TIMEOUT", "20s"}},
                             .environment_of = [](int rank) { return with_open_files(rank == 0 ? 64 : 1024); }};
  const auto outcomes = run_processes(4, body, options);
  EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.hung) << "and the others learn of it";
}

// Whether this process may have a /dev/shm of its own, which is then as small as that of a container.
bool take_small_dev_shm() {
  const auto write = [](const char* path, const std::string& text) {
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && ::write(fd, text.data(), text.size()) == ssize_t(text.size());
    if (fd >= 0) ::close(fd);
    return done;
  };
  if (::geteuid() == 0) {
    if (::unshare(CLONE_NEWNS) != 0) return false;
  } else {
    const std::string id = std::to_string(::geteuid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write("/proc/self/uid_map", "0 " + id + " 1")) return false;
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1M") == 0;
}

TEST(Limits, ADevShmOfOneMebibyteDoesNotMatter) {
  const pid_t trial = ::fork();
  if (trial == 0) ::_exit(take_small_dev_shm() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(trial, &status, 0), trial);
  if (status != 0) GTEST_SKIP() << "this system lets nobody mount a /dev/shm of its own";
  const auto outcomes = run_processes(2,
                                      [](Group& world) {
                                        sum_of_ones(world, std::size_t(4) << 20);
                                        check(world.allocate(std::size_t(16) << 20).ok(), "memory of the heap");
                                      },
                                      {.transport = "shm", .environment_of = [](int) {
                                         if (!take_small_dev_shm()) std::abort();
                                         return std::map<std::string, std::string>();
                                       }});
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
