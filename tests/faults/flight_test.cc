// The flight records of jobs that go wrong: each rank's file is read, and the report names who was missing where.
#include "tutti/comm/group/flight.h"

#include <signal.h>

#include <filesystem>
#include <thread>

#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"
#include "tutti/trace/flight/report.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const std::string kHere = "faults/flight_test.cc:";

// Where the records of one test lie, outside of what run_world() looks at.
class Records {
 public:
  Records() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-records-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  Records(const Records&) = delete;
  ~Records() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::map<std::string, std::string> variable() const { return {{"TUTTI_FLIGHT_DIR", path_}}; }
  bool has(int rank) const { return std::filesystem::exists(path_ + "/" + trace::flight_file_name(rank)); }
  // Until those ranks have written; whoever dies before makes the watchdog bark.
  void await(const std::vector<int>& ranks) const {
    for (const int rank : ranks)
      while (!has(rank)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<trace::FlightDump> read() const {
    auto files = trace::read_flight_folders({path_}).or_throw();
    EXPECT_THAT(files.problems, IsEmpty());
    return files.dumps;
  }
  trace::FlightReport report() const {
    trace::FlightReport report = trace::make_flight_report(read());
    if (std::getenv("TUTTI_SHOW_ERRORS")) std::fputs(to_text(report).c_str(), stderr);
    return report;
  }

 private:
  std::string path_;
};

class Flight : public ::testing::TestWithParam<Way> {
 protected:
  std::vector<Outcome> run(const RankBody& body, double timeout = 1000) {
    return run_world(GetParam(), 3, body, {.timeout = timeout, .environment = records_.variable()});
  }
  const Records records_;
};

TEST_P(Flight, ARankThatIsKilled) {
  run([](Group& world) {
    float one = 1;
    for (int i = 0; i < 5; ++i) all_reduce(world, std::span(&one, 1));
    if (world.rank() == 1) ::raise(SIGKILL);
    expect_failure(world, [&] { barrier(world); });
  });
  const trace::FlightReport report = records_.report();
  EXPECT_TRUE(report.stuck);
  EXPECT_THAT(report.without_record, ElementsAre(1));
  ASSERT_FALSE(report.groups.empty());
  EXPECT_EQ(report.groups[0].awaited, 6u);
  EXPECT_EQ(report.groups[0].awaited_call, "barrier");
  EXPECT_THAT(report.groups[0].without_record, ElementsAre(1));
  EXPECT_THAT(report.verdict, Contains(HasSubstr("rank 1 left no record: it was killed (SIGKILL)")));
  EXPECT_THAT(report.groups[0].completed_call, "all_reduce (f32[1], sum)");
}

TEST_P(Flight, ACallThatIsNotTheSame) {
  run([](Group& world) {
    std::vector<float> data(100);
    barrier(world);
    expect_failure(world, [&] {
      if (world.rank() == 2)
        all_reduce(world, std::span(data), ReduceOp::kMax);
      else
        all_reduce(world, std::span(data));
    });
  });
  const trace::FlightReport report = records_.report();
  ASSERT_FALSE(report.groups.empty());
  EXPECT_EQ(report.groups[0].mismatch, 2u);
  EXPECT_THAT(report.verdict.front(), AllOf(HasSubstr("different calls on group world: "),
                                            HasSubstr("ranks 0, 1 called all_reduce #2 (f32[100], sum) at " + kHere),
                                            HasSubstr("rank 2 called all_reduce #2 (f32[100], max) at " + kHere)));
}

// It computes for ever: nothing tells it of the others' error but their wish to look.
TEST_P(Flight, ARankThatStopsCallingIsAskedBySignal) {
  run(
      [this](Group& world) {
        const auto pids = processes_of(world);
        const Group pair = world.new_group(std::vector<int>{0, 1}, "pair").or_throw();
        std::vector<float> four(4);
        if (world.rank() == 1) {
          broadcast(pair, std::span(four), 0);
          records_.await({0, 1, 2});
          ::_exit(0);
        }
        if (world.rank() == 0) broadcast(pair, std::span(four), 0);
        try {
          expect_failure(world, [&] { barrier(world); });
        } catch (...) {
          if (world.rank() == 0) ::kill(pids[1], SIGUSR2);
          records_.await({0, 1, 2});
          throw;
        }
      },
      1);
  const trace::FlightReport report = records_.report();
  EXPECT_THAT(report.without_record, IsEmpty());
  EXPECT_THAT(report.verdict.front(), MatchesRegex("ranks 0, 2 wait in barrier #[0-9]+ on group world for .*; rank 1 "
                                                   "has not joined"));
  EXPECT_THAT(report.verdict.back(),
              MatchesRegex("rank 1 did not join: it has been in no call for .*; its last call was broadcast #1 "
                           ".f32.4., root 0. on group world/pair at " +
                           kHere + "[0-9]+"));
}

TEST_P(Flight, ASignalInAHangChangesNothing) {
  const auto outcomes = run([this](Group& world) {
    const auto pids = processes_of(world);
    std::vector<float> data(1000, 1);
    if (world.rank() == 0) {
      // The others sleep in their calls by now, or will: the signal finds them anywhere.
      for (const int rank : {1, 2}) ::kill(pids[rank], SIGUSR2);
      records_.await({1, 2});
      ::raise(SIGUSR2);
      records_.await({0});
    }
    all_reduce(world, std::span(data));
    check(data[999] == 3, "the sum is ", data[999]);
    const Work work = all_reduce_async(world, std::span(data));
    work.get();
  });
  EXPECT_EQ(describe(outcomes), "");
  const auto dumps = records_.read();
  ASSERT_EQ(dumps.size(), 3u);
  for (const trace::FlightDump& dump : dumps) {
    EXPECT_THAT(dump.reasons, ElementsAre("SIGUSR2"));
    EXPECT_FALSE(dump.failed);
  }
  EXPECT_EQ(trace::make_flight_report(dumps).groups[0].name, "world");
}

volatile sig_atomic_t own_signals = 0;

TEST_P(Flight, AHandlerOfTheProgramStays) {
  ::signal(SIGUSR2, [](int) { own_signals = own_signals + 1; });  // the ranks inherit it
  const auto outcomes = run([](Group& world) {
    ::raise(SIGUSR2);
    check(own_signals == 1, "the program's handler was not called");
    barrier(world);
    write_flight_record(world, "because").status().or_throw();
  });
  ::signal(SIGUSR2, SIG_DFL);
  EXPECT_EQ(describe(outcomes), "");
  for (const trace::FlightDump& dump : records_.read()) EXPECT_THAT(dump.reasons, ElementsAre("because"));
}

// Sends, receives, queued calls, plans: what stands in a record.
TEST_P(Flight, WhatIsRecorded) {
  const auto outcomes = run([](Group& world) {
    std::vector<float> data(1000, 1);
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) works.push_back(all_reduce_async(world, std::span(data)));
    for (const Work& work : works) work.get();
    float one = 1;
    if (world.rank() == 0) send(world, std::span<const float>(&one, 1), 1, 7);
    if (world.rank() == 1) recv(world, std::span(&one, 1), 0, 7);
    write_flight_record(world).status().or_throw();
    barrier(world);
  });
  EXPECT_EQ(describe(outcomes), "");
  const auto dumps = records_.read();
  ASSERT_EQ(dumps.size(), 3u);
  const auto& operations = dumps[0].operations;
  ASSERT_EQ(operations.size(), 4u);
  const trace::FlightOperation& first = operations[0];
  EXPECT_EQ(first.call, "all_reduce (f32[1000], sum)");
  EXPECT_EQ(first.kind, "all_reduce");
  EXPECT_EQ(first.dtype, "f32");
  EXPECT_EQ(first.op, "sum");
  EXPECT_EQ(first.count, 1000u);
  EXPECT_EQ(first.bytes, 4000u);
  EXPECT_EQ(first.root, -1);
  EXPECT_THAT(first.way, AnyOf("direct", "ring", "recursive_doubling", "bruck", "halving_doubling", "mesh"));
  EXPECT_EQ(first.state, trace::FlightOperation::State::kCompleted);
  EXPECT_LE(first.scheduled, first.started);
  EXPECT_LT(first.started, first.ended);
  EXPECT_THAT(first.site, HasSubstr(kHere));
  EXPECT_TRUE(operations[3].exchange);
  EXPECT_EQ(operations[3].call, "send (f32[1], to 1, tag 7)");
  EXPECT_EQ(operations[3].way, "link");
  EXPECT_EQ(operations[3].root, 1);
  EXPECT_EQ(operations[3].tag, 7);
  EXPECT_EQ(operations[3].sequence, 1u);
  EXPECT_EQ(dumps[2].operations.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Flight, ::testing::ValuesIn(ways_of_processes()),
                         [](const auto& info) { return info.param.name; });

// Records are made of what was there at one moment, while the job continues at full speed.
TEST(FlightOfThreads, AreWrittenWhileTheJobContinues) {
  const Records records;
  const auto outcomes = run_threads(2,
                                    [](Group& world) {
                                      std::vector<float> data(3000, 1);
                                      std::thread writer;
                                      if (world.rank() == 0) {
                                        writer = std::thread([world] {
                                          for (int i = 0; i < 10; ++i)
                                            write_flight_record(world, "again").status().or_throw();
                                        });
                                      }
                                      for (int i = 0; i < 2000; ++i) {
                                        float one = 1;
                                        all_reduce(world, std::span(&one, 1));
                                        check(one == 2, "the sum is ", one);
                                        if (i % 10 == 0) all_reduce_async(world, std::span(data)).get();
                                      }
                                      if (writer.joinable()) writer.join();
                                    },
                                    {.flight_folder = records.variable()["TUTTI_FLIGHT_DIR"]});
  EXPECT_EQ(describe(outcomes), "");
  const auto dumps = records.read();
  ASSERT_EQ(dumps.size(), 1u);
  EXPECT_EQ(dumps[0].reasons.size(), 8u);
  EXPECT_FALSE(dumps[0].operations.empty());
  for (std::size_t i = 1; i < dumps[0].operations.size(); ++i)
    EXPECT_EQ(dumps[0].operations[i].sequence, dumps[0].operations[i - 1].sequence + 1);
}

TEST(FlightSwitch, SizeNoughtIsOff) {
  const Records records;
  auto environment = records.variable();
  environment["TUTTI_FLIGHT_SIZE"] = "0";
  const auto outcomes = run_world({"shm", true, "shm", ""}, 2,
                                  [](Group& world) {
                                    barrier(world);
                                    const auto written = write_flight_record(world);
                                    check(!written.ok(), "there is a record");
                                    throw std::runtime_error(to_string(written.error()));
                                  },
                                  {.environment = environment});
  for (const Outcome& o : outcomes)
    EXPECT_THAT(o.error, HasSubstr("there is no flight record: TUTTI_FLIGHT_SIZE is 0"));
  EXPECT_FALSE(records.has(0));
}

}  // namespace
}  // namespace tutti::test
