// Ranks that are real processes join through every scheme, and fail with words that a stranger understands.
#include "tutti/rendezvous/join.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/harness/joining.h"
#include "tests/launch/await_file.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Ranks;
using testing::Report;
using testing::ReservedPort;
using testing::Start;
namespace fs = std::filesystem;

Environment by_hand(int rank, int world_size, const std::string& port, const std::string& host = "127.0.0.1") {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", host},
          {"MASTER_PORT", port}};
}

void expect_world(const std::vector<Report>& reports, const std::string& started_by) {
  std::set<std::string> jobs, secrets, places;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const Report& report = reports[i];
    ASSERT_TRUE(report.ok) << report.error << "\n" << report.log;
    EXPECT_EQ(report.rank, int(i));
    EXPECT_EQ(report.world_size, int(reports.size()));
    EXPECT_EQ(report.started_by, started_by);
    EXPECT_EQ(report.extra, "met");
    jobs.insert(report.job);
    secrets.insert(report.fingerprint);
    places.insert(report.store_address);
  }
  EXPECT_EQ(jobs.size(), 1u);
  EXPECT_EQ(secrets.size(), 1u);
  EXPECT_EQ(places.size(), 1u);
}

// Files that a job left in its runtime folder.
std::vector<std::string> leftovers(const Ranks& ranks) {
  std::vector<std::string> names;
  const fs::path folder = ranks.folder() + "/tutti";
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(Join, AHostNameWithoutAnAddressIsReported) {
  Ranks ranks;
  const Report report = ranks.run({{by_hand(0, 2, "1", "nohost.invalid")}}).front();
  EXPECT_THAT(report.error, AllOf(HasSubstr("cannot find the address of host \"nohost.invalid\""),
                                  HasSubstr("MASTER_ADDR"), Not(HasSubstr("other hosts can reach"))));
}

TEST(Join, NoSecretStaysBehindAJoinThatTimedOut) {
  Ranks ranks;
  const ReservedPort port;
  const Report report = ranks.run({{by_hand(0, 2, port.text()), {.timeout = 100ms}}}).front();
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(leftovers(ranks), ::testing::IsEmpty());
}

TEST(Join, RankZeroWarnsOfAMisspeltVariable) {
  Ranks ranks;
  const ReservedPort port;
  std::vector<Start> starts;
  for (int rank = 0; rank < 2; ++rank) {
    Environment environment = by_hand(rank, 2, port.text());
    environment["TUTTI_TIMEOUTS"] = "1s";
    starts.push_back({environment});
  }
  const auto reports = ranks.run(starts);
  EXPECT_THAT(reports[0].log, HasSubstr("TUTTI_TIMEOUTS is no variable of tutti and means nothing (did you mean "
                                        "TUTTI_TIMEOUT?)"));
  EXPECT_THAT(reports[1].log, Not(HasSubstr("TUTTI_TIMEOUTS")));
}

TEST(Join, AloneWithoutVariables) {
  Ranks ranks;
  const Report report = ranks.run({Start{}}).front();
  EXPECT_TRUE(report.ok) << report.error;
  EXPECT_EQ(report.world_size, 1);
  EXPECT_EQ(report.started_by, "alone");
  EXPECT_EQ(report.store_address, "");
}

class JoinSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Join, JoinSizes, ::testing::Values(2, 3, 4));

TEST_P(JoinSizes, ByHandWithVariables) {
  Ranks ranks;
  const ReservedPort port;
  std::vector<Start> starts;
  for (int rank = 0; rank < GetParam(); ++rank) starts.push_back({by_hand(rank, GetParam(), port.text())});
  const auto reports = ranks.run(starts);
  expect_world(reports, "by hand");
  for (const Report& report : reports) {
    EXPECT_EQ(report.local_host, "127.0.0.1");
    EXPECT_EQ(report.store_address, "127.0.0.1:" + port.text());
    EXPECT_EQ(report.serves, report.rank == 0);
  }
  EXPECT_THAT(leftovers(ranks), ::testing::IsEmpty());
}

TEST_P(JoinSizes, TcpUrl) {
  Ranks ranks;
  const ReservedPort port;
  std::vector<Start> starts;
  for (int rank = GetParam() - 1; rank >= 0; --rank)  // rank 0, which serves, last
    starts.insert(
        starts.begin(),
        {{}, {.url = "tcp://127.0.0.1:" + port.text() + "?world_size=" + std::to_string(GetParam()), .rank = rank}});
  expect_world(ranks.run(starts), "by hand");
}

TEST_P(JoinSizes, FileUrl) {
  Ranks ranks;
  const std::string path = ranks.folder() + "/meeting";
  std::vector<Start> starts;
  for (int rank = 0; rank < GetParam(); ++rank) {
    const std::string url =
        "file://" + path + "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(GetParam());
    starts.push_back({{}, {.url = url}});
  }
  const auto reports = ranks.run(starts);
  expect_world(reports, "by hand");
  EXPECT_EQ(reports[1].local_host, "");
  EXPECT_FALSE(fs::exists(path)) << "the owner removes the file";
}

TEST_P(JoinSizes, TheStoreOfTuttiRun) {
  Ranks ranks;
  const Fd secret(::memfd_create("secret", 0));
  const transport::Secret key = transport::Secret::random();
  ASSERT_EQ(::write(secret.get(), key.bytes().data(), 32), 32);
  const int agent = ranks.start_helper([&](int out) {
    auto server = StoreServer::start(transport::Address{.host = "127.0.0.1"}, transport::Credentials{key, "j17", 0});
    const std::string line = server.ok() ? to_string((*server)->address()) + "\n" : "\n";
    if (::write(out, line.data(), line.size()) > 0) ::pause();
  });
  const std::string address = ranks.read_line(agent);
  std::vector<Start> starts;
  for (int rank = 0; rank < GetParam(); ++rank) {
    Environment environment = by_hand(rank, GetParam(), "1");  // a port that nobody may bind: it is the program's
    environment.insert({{"TUTTI_STORE", address},
                        {"TUTTI_JOB", "j17"},
                        {"TUTTI_GENERATION", "5"},
                        {"TUTTI_SECRET_FD", std::to_string(secret.get())},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(GetParam())},
                        {"TORCHELASTIC_RUN_ID", "j17"}});
    starts.push_back({environment});
  }
  const auto reports = ranks.run(starts);
  expect_world(reports, "tutti run");
  for (const Report& report : reports) {
    EXPECT_FALSE(report.serves);
    EXPECT_EQ(report.local_rank, report.rank);
    EXPECT_EQ(report.store_address, address);
  }
}

// Rank 2 finds nobody at the name, as in a container with a network of its own.
TEST(Join, TheStoreOfTuttiRunAtAUnixSocketWhereThatCanBeReached) {
  Ranks ranks;
  const Fd secret(::memfd_create("secret", 0));
  const transport::Secret key = transport::Secret::random();
  ASSERT_EQ(::write(secret.get(), key.bytes().data(), 32), 32);
  const int agent = ranks.start_helper([&](int out) {
    auto server =
        StoreServer::start(transport::Address{.host = "127.0.0.1"}, transport::Credentials{key, "j17", 0}).or_throw();
    const std::string lines = to_string(server->unix_address().or_throw()) + "\n" + to_string(server->address()) + "\n";
    if (::write(out, lines.data(), lines.size()) > 0) ::pause();
  });
  const std::string near = ranks.read_line(agent), tcp = ranks.read_line(agent);
  const auto start = [&](int rank, const std::string& store) {
    Environment environment = by_hand(rank, 3, "1");
    environment.insert({{"TUTTI_STORE", store},
                        {"TUTTI_JOB", "j17"},
                        {"TUTTI_GENERATION", "5"},
                        {"TUTTI_SECRET_FD", std::to_string(secret.get())},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", "3"}});
    return Start{
        environment, {}, {}, [](Membership& member) {
          const auto twin =
              TcpStore::connect(member.stores, member.store_credentials, member.rank, Deadline::after(60s)).or_throw();
          (void)twin->num_keys().or_throw();
          return tutti::to_string(member.stores);
        }};
  };
  const auto reports =
      ranks.run({start(0, near + "," + tcp), start(1, near + "," + tcp), start(2, "unix:@nobody," + tcp)});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_EQ(report.store_address, tcp);
    EXPECT_EQ(report.local_host, "127.0.0.1");
    EXPECT_EQ(report.extra, report.rank == 2 ? tcp : near);
  }
}

TEST(JoinFails, AWrongSecretAtTheUnixSocketOfTuttiRun) {
  Ranks ranks;
  const int agent = ranks.start_helper([&](int out) {
    auto server = StoreServer::start(transport::Address{.host = "127.0.0.1"},
                                     transport::Credentials{transport::Secret::random(), "j17", 0})
                      .or_throw();
    const std::string line = to_string(server->unix_address().or_throw()) + "," + to_string(server->address()) + "\n";
    if (::write(out, line.data(), line.size()) > 0) ::pause();
  });
  Environment environment = by_hand(0, 2, "1");
  environment.insert({{"TUTTI_STORE", ranks.read_line(agent)}, {"TUTTI_JOB", "j17"}, {"TUTTI_SECRET", "swordfish"}});
  EXPECT_THAT(ranks.run({{environment}}).front().error,
              AllOf(HasSubstr("Refused: join, rank 0: the store at unix:@tutti-"), HasSubstr("holds another secret")));
}

Environment torchrun(int rank, int local_size, int world_size, const std::string& host, const std::string& job) {
  Environment environment = by_hand(rank, world_size, "29500", host);
  environment.insert({{"TORCHELASTIC_RUN_ID", job},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"},
                      {"LOCAL_RANK", std::to_string(rank % local_size)},
                      {"LOCAL_WORLD_SIZE", std::to_string(local_size)}});
  return environment;
}

TEST(Join, TorchrunWhoseAgentHoldsMasterPort) {
  Ranks ranks;
  const auto reports = ranks.run({{torchrun(0, 3, 3, "127.0.0.1", "none")},
                                  {torchrun(1, 3, 3, "127.0.0.1", "none")},
                                  {torchrun(2, 3, 3, "127.0.0.1", "none")}});
  expect_world(reports, "torchrun");
  EXPECT_EQ(reports[0].store_address, "unix:" + ranks.folder() + "/tutti/torchrun-none-29500.sock");
  EXPECT_EQ(reports[1].local_host, "");
  EXPECT_THAT(leftovers(ranks), ::testing::IsEmpty());
}

TEST(Join, MpirunOnOneHost) {
  Ranks ranks;
  std::vector<Start> starts;
  for (const char* rank : {"0", "1", "2"})
    starts.push_back({{{"OMPI_COMM_WORLD_RANK", rank},
                       {"OMPI_COMM_WORLD_SIZE", "3"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                       {"PMIX_NAMESPACE", "1254424577"}}});
  expect_world(ranks.run(starts), "mpirun");
}

TEST(Join, SrunOnOneHost) {
  Ranks ranks;
  std::vector<Start> starts;
  for (const char* rank : {"0", "1"})
    starts.push_back({{{"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", rank},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_LOCALID", rank},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2"},
                       {"SLURM_STEP_NUM_NODES", "1"}}});
  expect_world(ranks.run(starts), "srun");
}

// An address of this machine that is not loopback, or empty.
std::string outward_address() {
  for (const std::string& host : transport::local_addresses())
    if (!transport::is_loopback(transport::Address{.host = host}) && host.find(':') == std::string::npos) return host;
  return {};
}

TEST(Join, SeveralHostsTakeTheNextDerivedPortIfAStrangerHasOne) {
  const std::string host = outward_address();
  if (host.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  Ranks ranks;
  const std::string run = "t" + std::to_string(::getpid());
  const auto ports = derived_ports("torchrun-" + run + "-29500");
  const auto stranger = listen(transport::Address{.host = host, .port = ports[0]});
  std::vector<Start> starts;
  for (int rank = 0; rank < 2; ++rank) {
    Environment environment = torchrun(rank, 1, 2, host, run);
    environment["TUTTI_SECRET"] = "swordfish";
    starts.push_back({environment});
  }
  const auto reports = ranks.run(starts);
  expect_world(reports, "torchrun");
  EXPECT_EQ(reports[1].local_host, host);
  EXPECT_THAT(reports[0].store_address, Not(HasSubstr(":" + std::to_string(ports[0]))));
}

TEST(JoinFails, DuplicateRankNamesBothProcessesOnEveryRank) {
  Ranks ranks;
  const ReservedPort port;
  const auto reports =
      ranks.run({{by_hand(0, 3, port.text())}, {by_hand(1, 3, port.text())}, {by_hand(1, 3, port.text())}});
  for (const Report& report : reports) {
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(
        report.error,
        MatchesRegex(
            "Mismatch: join, rank [01]: two processes are rank 1: this one, pid [0-9]+ on [^ ]+ [(]RANK in the "
            "environment[)], and pid [0-9]+ on [^ ]+ [(]RANK in the environment[)] [(]hint: give every rank its "
            "own number.*"));
    EXPECT_THAT(report.error, AllOf(HasSubstr("pid " + std::to_string(reports[1].pid)),
                                    HasSubstr("pid " + std::to_string(reports[2].pid))));
  }
}

TEST(JoinFails, WrongWorldSizeSaysWhichRankSaysWhat) {
  Ranks ranks;
  const ReservedPort port;
  const auto reports = ranks.run({{by_hand(0, 3, port.text())},
                                  {by_hand(1, 3, port.text())},
                                  {{}, {.url = "tcp://127.0.0.1:" + port.text() + "?rank=2&world_size=4"}}});
  for (const Report& report : reports) {
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(report.error, HasSubstr("Mismatch: join, rank "));
    // Whoever came first is "rank R ... says N", who finds it there "says the world has N ranks".
    EXPECT_THAT(report.error, ContainsRegex("says (the world has )?3 (ranks )?[(]WORLD_SIZE in the environment[)]"));
    EXPECT_THAT(report.error, ContainsRegex("says (the world has )?4 (ranks )?[(]world_size= in the URL[)]"));
    EXPECT_THAT(report.error, HasSubstr("give every rank the same world size"));
  }
}

TEST(JoinFails, AMissingRankIsNamedByAll) {
  Ranks ranks;
  const ReservedPort port;
  const auto reports =
      ranks.run({{by_hand(0, 4, port.text()), {.timeout = 700ms}}, {by_hand(2, 4, port.text()), {.timeout = 60s}}});
  for (const Report& report : reports) {
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(report.error, HasSubstr("ranks 1, 3 of 4 did not join after 7"));
    EXPECT_THAT(report.error, HasSubstr(" ms of 700 ms (hint: read the logs of the missing ranks"));
    EXPECT_THAT(report.error, HasSubstr("; the ranks meet at 127.0.0.1:" + port.text()));
  }
  EXPECT_THAT(reports[0].error, HasSubstr("Timeout: join, rank 0: "));
  EXPECT_THAT(reports[1].error, HasSubstr("Timeout: join, rank 2: "));
}

TEST(JoinFails, ALogLineNamesTheMissingRanks) {
  Ranks ranks;
  const ReservedPort port;
  const auto reports = ranks.run({{by_hand(0, 4, port.text()), {.timeout = 12s}},
                                  {by_hand(2, 4, port.text()), {.timeout = 12s}},
                                  {by_hand(3, 4, port.text()), {.timeout = 1s}}});
  for (const int i : {0, 1})
    EXPECT_THAT(
        reports[std::size_t(i)].log,
        AllOf(ContainsRegex("waiting for the other ranks, .* of 12 s so far: rank 1 of 4 did not join; rank 3 joined "
                            "and timed out after 1 s; here: rank 0 [(]pid [0-9]+ on [^,]*[)], rank 2 [(]pid [0-9]+ "
                            "on [^,]*[)]; "),
              HasSubstr("; the ranks meet at 127.0.0.1:" + port.text())))
        << reports[std::size_t(i)].error;
}

TEST(JoinFails, AForeignJobAtThePort) {
  Ranks ranks;
  const ReservedPort port;
  const int other = ranks.start_helper([&](int out) {
    auto server = StoreServer::start(transport::Address{.host = "127.0.0.1", .port = std::uint16_t(port.number())},
                                     transport::Credentials{transport::Secret::random(), "theirs", 0});
    if (::write(out, server.ok() ? "up\n" : "no\n", 3) > 0) ::pause();
  });
  ASSERT_EQ(ranks.read_line(other), "up");
  const auto reports = ranks.run({{by_hand(0, 2, port.text())}, {by_hand(1, 2, port.text())}});
  EXPECT_THAT(reports[0].error, AllOf(HasSubstr("AddressInUse: join, rank 0: "), HasSubstr("127.0.0.1:" + port.text()),
                                      HasSubstr("pid " + std::to_string(ranks.pid(other))),
                                      HasSubstr("another job may use the same MASTER_ADDR and MASTER_PORT")));
  EXPECT_THAT(reports[1].error, AllOf(HasSubstr("Refused: join, rank 1: "),
                                      HasSubstr("belongs to another job (ours is \"port-" + port.text() + "\")"),
                                      HasSubstr("(the place is from MASTER_ADDR and MASTER_PORT)"),
                                      HasSubstr("give each job its own port")));
}

TEST(JoinFails, TheSameProgramStartedTwiceAtOnePort) {
  Ranks ranks;
  const ReservedPort port;
  const std::string joined = ranks.folder() + "/joined-";
  const auto stay = [&](Membership& member) {
    std::ofstream(joined + std::to_string(member.rank)) << "";
    return (void)member.store->get("test/never", Deadline::after(60s)), std::string();
  };
  ranks.start({by_hand(0, 2, port.text()), {}, {}, stay});
  ranks.start({by_hand(1, 2, port.text()), {}, {}, stay});
  for (const char* rank : {"0", "1"}) testing::await_file(joined + rank);
  // The first job's secret is gone once it is complete, so the second one has another: it is told apart from the first.
  const auto second = ranks.run({{by_hand(1, 2, port.text())}, {by_hand(0, 2, port.text())}});
  EXPECT_THAT(second[0].error, AllOf(HasSubstr("Refused: join, rank 1: "), HasSubstr("holds another secret")));
  EXPECT_THAT(second[1].error, HasSubstr("AddressInUse: join, rank 0: "));
}

TEST(JoinFails, OneTooManyOnceAllHaveCome) {
  Ranks ranks;
  const ReservedPort port;
  const auto with_secret = [&](int rank) {
    Environment environment = by_hand(rank, 2, port.text());
    environment["TUTTI_SECRET"] = "swordfish";
    return environment;
  };
  const std::string joined = ranks.folder() + "/joined-";
  const auto stay = [&](Membership& member) {
    std::ofstream(joined + std::to_string(member.rank)) << "";
    return (void)member.store->get("test/never", Deadline::after(60s)), std::string();
  };
  const int first = ranks.start({with_secret(0), {}, {}, stay});
  const int second = ranks.start({with_secret(1), {}, {}, stay});
  for (const char* rank : {"0", "1"}) testing::await_file(joined + rank);
  const auto third = ranks.run({{with_secret(1)}}).front();
  EXPECT_THAT(third.error,
              AllOf(HasSubstr("Mismatch: join, rank 1: all 2 ranks of this job have already joined; rank 1 is pid " +
                              std::to_string(ranks.pid(second))),
                    HasSubstr("so this process, pid " + std::to_string(third.pid)), HasSubstr("is one too many")));
  ranks.kill(first);
  ranks.kill(second);
}

TEST(JoinFails, AStrangerAtThePort) {
  Ranks ranks;
  const ReservedPort port;
  const int web = ranks.start_helper([&](int out) {
    auto listener = listen(transport::Address{.host = "127.0.0.1", .port = std::uint16_t(port.number())});
    if (!listener.ok() || ::write(out, "up\n", 3) < 0) return;
    for (;;) {
      const Deadline deadline = Deadline::after(60s);
      if (!transport::wait_readable(listener->fd.get(), deadline).ok()) return;
      const auto fd = transport::accept(*listener);
      if (!fd.ok() || !*fd) continue;
      const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
      (void)transport::send_all(fd->get(), std::as_bytes(std::span(answer)), deadline);
      std::byte hello[160];
      (void)transport::recv_all(fd->get(), hello, deadline);
    }
  });
  ASSERT_EQ(ranks.read_line(web), "up");
  const auto report = ranks.run({{by_hand(1, 2, port.text())}}).front();
  EXPECT_THAT(report.error,
              AllOf(HasSubstr("join, rank 1: "), HasSubstr("HTTP"), HasSubstr("127.0.0.1:" + port.text())));
}

TEST(JoinFails, AnUnreachableMaster) {
  Ranks ranks;
  const ReservedPort port;
  const auto report = ranks.run({{by_hand(1, 2, port.text(), "localhost"), {.timeout = 300ms}}}).front();
  EXPECT_THAT(report.error, AllOf(HasSubstr("Unreachable: join, rank 1: cannot connect to "),
                                  HasSubstr("(the place is from MASTER_ADDR and MASTER_PORT) after"),
                                  HasSubstr("of 300 ms: Connection refused"), HasSubstr("is the first rank running")));
}

TEST(JoinFails, AnAddressThatIsNotThisMachines) {
  Ranks ranks;
  Environment environment = by_hand(0, 2, "29500", "203.0.113.9");
  environment["TUTTI_SECRET"] = "swordfish";
  const auto report = ranks.run({{environment}}).front();
  EXPECT_THAT(
      report.error,
      HasSubstr(
          "Usage: join, rank 0: rank 0 is to serve at 203.0.113.9 (MASTER_ADDR and MASTER_PORT), but that is not an "
          "address of this machine (hint: start rank 0 on the machine that MASTER_ADDR and MASTER_PORT names"));
  EXPECT_THAT(report.error, HasSubstr("this machine has "));
  EXPECT_THAT(report.error, HasSubstr("127.0.0.1"));
}

TEST(JoinFails, TheWildcard) {
  Ranks ranks;
  Environment environment = by_hand(0, 2, "29500", "0.0.0.0");
  environment["TUTTI_SECRET"] = "swordfish";
  EXPECT_THAT(
      ranks.run({{environment}}).front().error,
      HasSubstr("0.0.0.0 (MASTER_ADDR and MASTER_PORT), which is not an address that other ranks can connect to"));
}

TEST(JoinFails, LoopbackForAWorldOfSeveralHosts) {
  Ranks ranks;
  Environment environment = torchrun(0, 1, 2, "127.0.0.1", "j");
  environment["TUTTI_SECRET"] = "swordfish";
  EXPECT_THAT(ranks.run({{environment}}).front().error,
              HasSubstr("Usage: join, rank 0: rank 0 would advertise the loopback address 127.0.0.1 (MASTER_ADDR), "
                        "which the ranks on other hosts "
                        "cannot reach (hint: give an address that they can reach; this machine has "));
}

TEST(JoinFails, SeveralHostsWithoutASecret) {
  Ranks ranks;
  EXPECT_THAT(ranks.run({{by_hand(0, 2, "29500", "203.0.113.9")}}).front().error,
              HasSubstr("Refused: join, rank 0: the job has no secret, and other hosts can reach 203.0.113.9 (from "
                        "MASTER_ADDR and MASTER_PORT)"));
}

TEST(JoinFails, AFileThatAnEarlierJobLeft) {
  Ranks ranks;
  const std::string path = ranks.folder() + "/meeting";
  const auto url = [&](int rank) { return "file://" + path + "?world_size=2&rank=" + std::to_string(rank); };
  const int killed = ranks.start({{}, {.url = url(0)}});
  testing::await_file(path);
  ranks.kill(killed);
  ASSERT_TRUE(fs::exists(path));
  const auto late = ranks.run({{{}, {.url = url(1), .timeout = 500ms}}}).front();
  EXPECT_THAT(late.error, AllOf(HasSubstr("join, rank 1"), HasSubstr(path), HasSubstr("(the place is from the URL)")))
      << late.error;
  EXPECT_THAT(late.error, HasSubstr("the file there is stale, left by job \"file-meeting\"")) << late.error;
  // The owner of the next job knows a dead one's file and takes its place.
  expect_world(ranks.run({{{}, {.url = url(0)}}, {{}, {.url = url(1)}}}), "by hand");
}

TEST(JoinFails, ASecondRankZeroAtAFile) {
  Ranks ranks;
  const std::string path = ranks.folder() + "/meeting";
  const auto url = [&](int rank) { return "file://" + path + "?world_size=2&rank=" + std::to_string(rank); };
  ranks.start({{}, {.url = url(0)}});
  testing::await_file(path);
  const auto second = ranks.run({{{}, {.url = url(0)}}}).front();
  EXPECT_THAT(second.error, AllOf(HasSubstr("AddressInUse: join, rank 0"), HasSubstr(path))) << second.error;
}

TEST(Join, TheNetworkOfTheJobIsChosen) {
  Ranks ranks;
  const std::string path = ranks.folder() + "/meet";  // a file says nothing of networks
  std::vector<Start> starts;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string url = "file://" + path + "?rank=" + std::to_string(rank) + "&world_size=2";
    starts.push_back({{{"TUTTI_IFACE", rank == 0 ? "lo" : "127.0.0.0/8"}}, {.url = url}});
  }
  for (const Report& report : ranks.run(starts)) EXPECT_EQ(report.local_host, "127.0.0.1") << report.error;
}

TEST(JoinFails, ANetworkThatIsNotHere) {
  Ranks ranks;
  const ReservedPort port;
  Environment environment = by_hand(0, 2, port.text());
  environment["TUTTI_IFACE"] = "nope0";
  EXPECT_THAT(
      ranks.run({{environment}}).front().error,
      AllOf(HasSubstr("Usage: join, rank 0: no interface \"nope0\" is up here with an address (from TUTTI_IFACE)"),
            HasSubstr("lo (127.0.0.1)")));
}

TEST(JoinFails, AStaleStoreVariable) {
  Ranks ranks;
  Environment environment = by_hand(0, 2, "29500");
  environment["TUTTI_STORE"] = "127.0.0.1:1";
  EXPECT_THAT(ranks.run({{environment}}).front().error,
              HasSubstr("TUTTI_STORE is set, but not the secret of that store"));
}

TEST(Join, ARankThatWasKilledWhileItWaitedMayBeStartedAgain) {
  Ranks ranks;
  const ReservedPort port;
  const int zero = ranks.start({by_hand(0, 3, port.text())});
  const int killed = ranks.start({by_hand(1, 3, port.text()), {.timeout = 60s}});
  // Its line on the log shows that it waits in the roll call.
  const std::string log = ranks.folder() + "/log-" + std::to_string(killed);
  testing::await_file(log,
                      [](const std::string& text) { return text.find("waiting for the other ranks") != text.npos; });
  ranks.kill(killed);
  const auto rest = ranks.run({{by_hand(1, 3, port.text())}, {by_hand(2, 3, port.text())}});
  const Report first = ranks.wait(zero);
  EXPECT_TRUE(first.ok) << first.error;
  EXPECT_TRUE(rest[0].ok) << rest[0].error;
  EXPECT_TRUE(rest[1].ok) << rest[1].error;
}

}  // namespace
}  // namespace tutti::rendezvous
