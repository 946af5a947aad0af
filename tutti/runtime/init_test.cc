// What a rank is told by its variables, from init() to a world. The rendezvous itself: tutti/rendezvous; what goes
// wrong later: tests/faults.
#include "tutti/runtime/init.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

using test::check;
using test::describe;
using test::run_processes;
using testing::AllOf;
using testing::HasSubstr;

// The sentence of init() with this variable; empty if it succeeds.
std::string init_with(const char* name, const char* value) {
  ::setenv(name, value, 1);
  const auto world = try_init({.rank = 0, .world_size = 1});
  ::unsetenv(name);
  return world.ok() ? "" : to_string(world.error());
}

TEST(Init, AMistypedAlgorithmIsReportedWithTheNearest) {
  EXPECT_EQ(init_with("TUTTI_ALGORITHM", "rign"),
            "Usage: TUTTI_ALGORITHM is \"rign\", which is no algorithm (hint: did you mean ring?)");
  EXPECT_THAT(init_with("TUTTI_ALGORITHM", "quickest"), HasSubstr("known are ring, recursive_doubling, "));
  EXPECT_EQ(init_with("TUTTI_ALGORITHM", "ring"), "");
  EXPECT_EQ(init_with("TUTTI_ALGORITHM", ""), "");
}

TEST(Init, ALimitForLeavingIsMoreThanNothing) {
  EXPECT_EQ(init_with("TUTTI_LEAVE_TIMEOUT", "0"), "Usage: TUTTI_LEAVE_TIMEOUT must be more than 0 s");
  EXPECT_EQ(init_with("TUTTI_LEAVE_TIMEOUT", "2s"), "");
}

TEST(Init, ALimitThatIsGivenAsAnOptionIsMoreThanNothing) {
  const auto world = try_init({.rank = 0, .world_size = 1, .collective_timeout = std::chrono::seconds(-1)});
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(to_string(world.error()),
            "Usage: the option for which TUTTI_TIMEOUT stands is -1 s, expected more than 0 s");
}

TEST(Init, AWrongSettingIsReportedWithTheRank) {
  const auto outcomes = run_processes(2, [](Group&) {}, {.environment = {{"TUTTI_ENGINE", "gloo,mpi"}}});
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(outcomes[std::size_t(rank)].error, "Usage: rank " + std::to_string(rank) +
                                                     ": TUTTI_ENGINE: \"gloo,mpi\" names more than one engine for cpu "
                                                     "(hint: one of each device, as in cpu:tutti,cuda:nccl)");
}

// The sentence of init() with these variables and options; empty if it succeeds.
std::string init_with(const std::map<std::string, std::string>& variables, Options options) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  options.rank = 0, options.world_size = 1;
  const auto world = try_init(options);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return world.ok() ? "" : to_string(world.error());
}

TEST(Init, WhatIsSaidOfTuttisEngineIsRefusedBesideAnother) {
  for (const char* setting : {"TUTTI_ALGORITHM=ring", "TUTTI_TRANSPORT=shm", "TUTTI_TRANSPORT=tcp",
                              "TUTTI_NETWORK=10us,12.5", "TUTTI_STREAMS=2", "TUTTI_PEER_TIMEOUT=5s"}) {
    const std::string text = setting, name = text.substr(0, text.find('=')), value = text.substr(name.size() + 1);
    for (const char* engine : {"gloo", "mpi", "cpu:gloo,cuda:nccl"})
      EXPECT_EQ(init_with({{"TUTTI_ENGINE", engine}, {name, value}}, {}),
                "Usage: " + text + " is for the engine tutti, and the bytes are moved by " +
                    (engine == std::string("mpi") ? "mpi" : "gloo") +
                    " (hint: leave it out, or take the engine tutti)");
    EXPECT_EQ(init_with({{"TUTTI_ENGINE", "cpu:tutti,cuda:nccl"}, {name, value}}, {}), "") << setting;
  }
  EXPECT_EQ(init_with({{"TUTTI_ALGORITHM", "ring"}}, {.transport = "shm", .engine = "gloo"}),
            "Usage: the transport shm, TUTTI_ALGORITHM=ring are for the engine tutti, and the bytes are moved by gloo "
            "(hint: leave them out, or take the engine tutti)");
  EXPECT_EQ(
      init_with({{"TUTTI_TRANSPORT", "auto"}, {"TUTTI_ALGORITHM", ""}, {"TUTTI_TIMEOUT", "5s"}}, {.engine = "gloo"}),
      "");
}

// Ranks that take different ways would wait for one another until the deadline of their first call.
TEST(Init, RanksWithDifferentSettingsAreReportedAtOnce) {
  const std::vector<std::array<std::string, 3>> differences = {
      {"TUTTI_ALGORITHM", "ring", "TUTTI_ALGORITHM is ring on rank 1 and not set on rank 0"},
      {"TUTTI_TRANSPORT", "tcp", "TUTTI_TRANSPORT is tcp on rank 1 and auto on rank 0"},
      {"TUTTI_ENGINE", "gloo", "TUTTI_ENGINE is cpu:gloo,cuda:ipc on rank 1 and cpu:tutti,cuda:ipc on rank 0"},
      {"TUTTI_STREAMS", "2", "TUTTI_STREAMS is 2 on rank 1 and 1 on rank 0"}};
  for (const auto& [variable, value, text] : differences) {
    const auto outcomes =
        run_processes(2, [](Group&) {}, {.environment_of = [&, variable = variable, value = value](int rank) {
                        std::map<std::string, std::string> own;
                        if (rank == 1) own[variable] = value;
                        return own;
                      }});
    EXPECT_EQ(outcomes[0].error, "Usage: " + text + " (hint: give all ranks the same)");
    EXPECT_THAT(outcomes[1].error, testing::StartsWith("Usage: " + variable + " is "));
  }
}

// However the ranks of a machine reach one another, they share its devices.
TEST(Init, EachRankOfAMachineHasADeviceOfItsOwn) {
  for (const char* transport : {"shm", "tcp"}) {
    const auto outcomes =
        run_processes(3,
                      [](Group& world) {
                        const std::string wanted = "cuda:" + std::to_string(world.rank());
                        check(world.device() == wanted, "rank ", world.rank(), " computes on ", world.device());
                      },
                      {.transport = transport, .environment = {{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}}});
    EXPECT_EQ(describe(outcomes), "") << transport;
  }
  const auto outcomes = run_processes(
      4,
      [](Group& world) {
        const std::string wanted = world.rank() % 2 ? "cuda:1" : "cuda:0";
        check(world.nodes() == 4 && world.device() == wanted, "rank ", world.rank(), " computes on ", world.device());
      },
      {.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}}, .environment_of = [](int rank) {
         return std::map<std::string, std::string>{{"TUTTI_HOST_ID", "container " + std::to_string(rank)}};
       }});
  EXPECT_EQ(describe(outcomes), "");
}

// LOCAL_RANK is 0 and 1 under each of them. What is to be done once on a host is done once.
TEST(Init, RanksOfTwoAgentsOfOneHostCountAsLocalRankDoes) {
  const auto outcomes = run_processes(
      4,
      [](Group& world) {
        check(world.local_rank() == world.rank() % 2 && world.local_size() == 2, "rank ", world.rank(),
              " is local rank ", world.local_rank(), " of ", world.local_size());
        check(world.nodes() == 1 && world.node() == 0, "on node ", world.node(), " of ", world.nodes());
        const Group second = world.split(world.rank() / 2, world.rank()).or_throw();
        check(second.local_rank() == world.rank() % 2, "local rank ", second.local_rank(), " of the agent's group");
        const int done = all_reduce(world, int(world.first([] {}, Group::Scope::kHost)));
        check(done == 1, "done by ", done, " ranks of the host");
      },
      {.environment_of = [](int rank) {
        return std::map<std::string, std::string>{{"GROUP_RANK", std::to_string(rank / 2)}};
      }});
  EXPECT_EQ(describe(outcomes), "");
}

// Without shared memory each rank counts as a node, but not as the only rank of its agent.
TEST(Init, LocalRanksCountOverTcpToo) {
  const auto outcomes =
      run_processes(2,
                    [](Group& world) {
                      check(world.local_rank() == world.rank() && world.local_size() == 2, "rank ", world.rank(),
                            " is local rank ", world.local_rank(), " of ", world.local_size());
                      check(world.nodes() == 2, "on ", world.nodes(), " nodes");
                    },
                    {.transport = "tcp", .environment = {{"GROUP_RANK", "0"}}});
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Init, ANameOfAHostIsNoBook) {
  const auto outcomes = run_processes(2, [](Group&) {}, {.environment = {{"TUTTI_HOST_ID", std::string(70'000, 'a')}}});
  EXPECT_THAT(describe(outcomes), ::testing::HasSubstr("TUTTI_HOST_ID has 70000 characters"));
  EXPECT_THAT(describe(outcomes), ::testing::HasSubstr("at most 255"));
}

// Bytes that are no UTF-8, and differ only in those.
TEST(Init, AnyBytesNameAHost) {
  const auto outcomes = run_processes(
      4,
      [](Group& world) {
        check(world.nodes() == 2 && world.node() == world.rank() / 2, "on node ", world.node(), " of ", world.nodes());
        check(all_reduce(world, 1) == 4, "a wrong sum");
      },
      {.environment_of = [](int rank) {
        return std::map<std::string, std::string>{{"TUTTI_HOST_ID", rank / 2 ? "caf\xe8" : "caf\xe9"}};
      }});
  EXPECT_EQ(describe(outcomes), "");
}

// Processes that another library has counted; its store is a folder.
class ForeignStoreTest : public ::testing::Test {
 protected:
  ForeignStoreTest() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~ForeignStoreTest() override { std::filesystem::remove_all(folder_); }

  rendezvous::ForeignStore store() const {
    return {.set =
                [this](const std::string& key, const std::string& value) {
                  const std::string path = path_of(key), part = path + ".part";
                  std::ofstream(part) << value;
                  std::filesystem::rename(part, path);
                },
            .get =
                [this](const std::string& key, Duration limit) {
                  const Deadline deadline = Deadline::after(limit);
                  while (!std::filesystem::exists(path_of(key))) {
                    if (deadline.expired()) throw std::runtime_error("no " + key);
                    ::usleep(1000);
                  }
                  std::ostringstream value;
                  value << std::ifstream(path_of(key)).rdbuf();
                  return value.str();
                },
            .add = [this](const std::string& key) {  // of one rank alone
              std::int64_t sum = 0;
              std::ifstream(path_of(key)) >> sum;
              std::ofstream(path_of(key)) << ++sum;
              return sum;
            }};
  }
  Group join(int rank, int size, const std::string& name = "w") const {
    return init_as_guest(store(), {.rank = rank, .world_size = size, .name = name, .library = "test"},
                         {.join_timeout = std::chrono::seconds(30), .collective_timeout = std::chrono::seconds(30)})
        .or_throw();
  }
  // What each rank threw; empty: nothing.
  std::vector<std::string> on_ranks(int size, const std::function<void(int rank)>& body) const {
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        std::string error;
        try {
          body(rank);
        } catch (const std::exception& thrown) {
          error = thrown.what();
        }
        std::ofstream(path_of("error" + std::to_string(rank))) << error;
        ::_exit(0);
      }
      ranks.push_back(pid);
    }
    std::vector<std::string> errors;
    for (int rank = 0; rank < size; ++rank) {
      int status = 0;
      ::waitpid(ranks[std::size_t(rank)], &status, 0);
      std::ostringstream error;
      error << std::ifstream(path_of("error" + std::to_string(rank))).rdbuf();
      errors.push_back(status == 0 ? error.str() : "status " + std::to_string(status));
    }
    return errors;
  }

 private:
  std::string path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder_ + "/" + key;
  }

  std::string folder_ = testing::TempDir() + "tutti_guest_XXXXXX";
};

TEST_F(ForeignStoreTest, AWorldThroughTheStoreOfAnotherLibraryLeavesTheProcessAlone) {
  const auto errors = on_ranks(3, [&](int rank) {
    const auto handlers = [] {
      std::vector<bool> set;
      for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGSEGV, SIGABRT}) {
        struct sigaction now {};
        ::sigaction(signal, nullptr, &now);
        set.push_back(now.sa_handler != SIG_DFL);
      }
      return set;
    };
    const auto before = handlers();
    const auto terminate = std::get_terminate();
    {
      const Group world = join(rank, 3);
      check(world.rank() == rank && all_reduce(world, rank) == 3, "a wrong sum");
    }
    const Group again = join(rank, 3, "again");
    const Group other = join(rank, 3, "beside it");
    check(all_reduce(again, 1) == 3 && all_reduce(other, 2) == 6, "a wrong sum in a second world");
    check(handlers() == before && std::get_terminate() == terminate, "the process was changed");
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_F(ForeignStoreTest, ARankThatDiesIsNamed) {
  const auto errors = on_ranks(2, [&](int rank) {
    const Group world = join(rank, 2);
    if (rank == 1) ::raise(SIGKILL);
    barrier(world);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("PeerLost"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace tutti
