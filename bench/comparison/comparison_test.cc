// The comparison without the peers: figures that are made up, and what is made of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/comparison/compare.h"
#include "bench/comparison/program.h"
#include "bench/comparison/turns.h"
#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = Judgement::Verdict;

const Item k4K = {"all_reduce", 4096}, k64M = {"all_reduce", std::size_t(64) << 20};

PeerFigures one(const Item& item, double us) { return {{item, {.us = us, .us_min = us / 2}}}; }

// Ours took 1, 1 and 2 us, the peer's 4, 5 and 6.
Turns three_turns(const Item& item = k4K) {
  Turns turns;
  for (const double us : {1, 1, 2}) turns.add(kOurs, one(item, us));
  for (const double us : {4, 5, 6}) turns.add("mpi", one(item, us));
  return turns;
}

Entrant entrant(const std::string& key, const std::string& name) { return {.key = key, .name = name}; }

TEST(Figures, AreReadFromLinesOfJson) {
  const auto figures = read_figures(
      "Some words\n"
      R"({"peer":"mpi","op":"all_reduce","ranks":2,"bytes":4096,"us":2.5,"us_min":2.4})"
      "\n"
      R"({"peer":"tutti","op":"barrier","ranks":2,"bytes":0,"us":0.1,"us_min":0.1,"p99_us":0.3,"limit_us":0.05,"wrong":0})"
      "\n");
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->size(), 2u);
  EXPECT_DOUBLE_EQ(figures->at(k4K).us, 2.5);
  EXPECT_DOUBLE_EQ(figures->at(k4K).us_min, 2.4);
  EXPECT_DOUBLE_EQ(figures->at({"barrier", 0}).p99_us, 0.3);
  EXPECT_DOUBLE_EQ(figures->at({"barrier", 0}).limit_us, 0.05);
}

TEST(Figures, ThatAreWrongOrNoneAreErrors) {
  EXPECT_THAT(read_figures(R"({"op":"all_reduce","bytes":8,"us":1,"us_min":1,"wrong":3})").error().detail,
              HasSubstr("some results were wrong"));
  EXPECT_THAT(read_figures(R"({"op":"all_reduce","bytes":8})").error().detail, HasSubstr("cannot read the figures"));
  EXPECT_THAT(read_figures(R"({"op":)").error().detail, HasSubstr("cannot read the figures"));
}

TEST(Ratio, IsTakenWithinATurnAndItsMedianQuoted) {
  const Spread ratio = three_turns().ratio("mpi", kOurs, k4K);  // 4, 5, 3
  EXPECT_DOUBLE_EQ(ratio.median, 4);
  EXPECT_DOUBLE_EQ(ratio.least, 3);
  EXPECT_DOUBLE_EQ(ratio.most, 5);
  EXPECT_EQ(ratio_text(ratio), "4.00x (3.00-5.00)");
  EXPECT_EQ(three_turns().ratio("gloo", kOurs, k4K).count, 0);
  EXPECT_EQ(ratio_text({}), "");
}

TEST(Ratio, AgainstTheBetterOfSeveralIsThatOfTheFastestInEachTurn) {
  Turns turns = three_turns();
  for (const double us : {3, 9, 9}) turns.add("gloo", one(k4K, us));
  const Spread ratio = turns.ratio_to_best({"mpi", "gloo"}, kOurs, k4K);  // 3, 5, 3
  EXPECT_DOUBLE_EQ(ratio.median, 3);
  EXPECT_DOUBLE_EQ(ratio.most, 5);
}

TEST(Judgement, MetNotMetAndNotMeasured) {
  const auto verdict = [](double wanted, std::vector<std::string> rivals, const Turns& turns) {
    return judge({{}, k4K, std::move(rivals), wanted}, turns).verdict;
  };
  EXPECT_EQ(verdict(4, {"mpi"}, three_turns()), Verdict::kMet);
  EXPECT_EQ(verdict(4.1, {"mpi"}, three_turns()), Verdict::kNotMet);
  EXPECT_EQ(verdict(4, {"gloo"}, three_turns()), Verdict::kUnknown);
  // Nobody knows who the better one is while one of them is missing.
  EXPECT_EQ(verdict(4, {"mpi", "gloo"}, three_turns()), Verdict::kUnknown);
  EXPECT_EQ(verdict(4, {"mpi"}, {}), Verdict::kUnknown);
}

TEST(Judgement, WithoutRivalsIsOurPercentile) {
  Turns turns;
  turns.add(kOurs, {{k4K, {.us = 1, .us_min = 1, .p99_us = 80}}});
  EXPECT_EQ(judge({{}, k4K, {}, 100}, turns).verdict, Verdict::kMet);
  EXPECT_EQ(judge({{}, k4K, {}, 79}, turns).verdict, Verdict::kNotMet);
}

TEST(TargetLine, SaysWhatWasMeasuredAndWhetherItIsMet) {
  const Target target{{}, k4K, {"mpi"}, 4};
  EXPECT_THAT(
      target_line(target, judge(target, three_turns())),
      ::testing::MatchesRegex(" +all_reduce +4 KiB +1.00 +Open MPI +5.00 +4.00x \\(3.00-5.00\\) +4.00x +4x +met\n"));
  EXPECT_THAT(target_line({{}, k4K, {"mpi"}, 5}, judge({{}, k4K, {"mpi"}, 5}, three_turns())), HasSubstr("NOT MET"));
  EXPECT_THAT(target_line(target, {}), HasSubstr("not measured"));
  EXPECT_THAT(target_line({{}, k4K, {"mpi", "gloo"}, 3}, {}), HasSubstr("best of both"));
  const auto json = nlohmann::json::parse(target_json(target, judge(target, three_turns())));
  EXPECT_EQ(json["met"], true);
  EXPECT_EQ(json["ratio"], 4.0);
  EXPECT_EQ(json["wanted"], 4.0);
  EXPECT_EQ(json["bytes"], 4096);
  EXPECT_TRUE(nlohmann::json::parse(target_json(target, {}))["met"].is_null());
}

TEST(Targets, AreInSectionsThatMeasureEachSizeOnce) {
  const auto all = sections(targets());
  std::size_t count = 0;
  std::set<Setting> settings;
  for (const Section& section : all) {
    count += section.targets.size();
    EXPECT_TRUE(settings.insert(section.setting).second) << to_string(section.setting);
    const Task task = section.task({.rounds = 3});
    EXPECT_EQ(std::set<Item>(task.items.begin(), task.items.end()).size(), task.items.size());
    EXPECT_EQ(task.method.rewrite, section.setting.rewrite);
    for (const Target& target : section.targets) EXPECT_THAT(task.items, ::testing::Contains(target.item));
  }
  EXPECT_EQ(count, targets().size());
  EXPECT_EQ(settings.size(), 9u);
  EXPECT_EQ(target_for({.ranks = 2}, k64M, "mpi"), 4.4);
  EXPECT_EQ(target_for({.ranks = 2, .rewrite = true}, k64M, "mpi"), 3.7);
  EXPECT_EQ(target_for({.ranks = 3}, k64M, "mpi"), std::nullopt);
}

TEST(OperationTable, HasTimesRatiosAndTargets) {
  Task task{.ranks = 2, .items = {k4K, k64M}};
  Turns turns = three_turns();
  for (int i = 0; i < 3; ++i) {
    turns.add(kOurs, one(k64M, 1000));
    turns.add("mpi", one(k64M, 2000));
  }
  const std::vector<Entrant> rivals = {entrant("mpi", "Open MPI"), entrant("gloo", "Gloo")};
  const std::string table = operation_table(task, rivals, three_turns());
  EXPECT_THAT(table, HasSubstr("4.00x (3.00-5.00)"));
  EXPECT_THAT(table, HasSubstr("4x met"));
  EXPECT_THAT(table, Not(HasSubstr("64 MiB")));  // nobody measured it
  const std::string verdict = operation_verdict(task, rivals, three_turns());
  EXPECT_THAT(verdict, HasSubstr("all_reduce: ahead of Open MPI at 1 of 1 size; 1 of 1 target met"));
  EXPECT_THAT(verdict, HasSubstr("Gloo has no all_reduce"));
}

TEST(OperationLines, HaveThePeersKeys) {
  const auto lines = split(trim(operation_lines({.ranks = 2, .items = {k4K}},
                                                {entrant(kOurs, "tutti"), entrant("mpi", "Open MPI")}, three_turns())),
                           '\n');
  ASSERT_EQ(lines.size(), 2u);
  const auto ours = nlohmann::json::parse(lines[0]), theirs = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(ours["peer"], "tutti");
  EXPECT_EQ(theirs["peer"], "mpi");
  for (const char* key : {"op", "ranks", "bytes", "us", "us_min"}) EXPECT_TRUE(theirs.contains(key)) << key;
  EXPECT_EQ(theirs["ratio"], 4.0);
  EXPECT_EQ(theirs["met"], true);
}

Plot made_up_plot() {
  Turns turns = three_turns();
  turns.add("gloo", one(k4K, 100));
  return plot_of({.ranks = 2, .items = {k4K}},
                 {entrant(kOurs, "tutti"), entrant("mpi", "it's MPI"), entrant("gloo", "Gloo")}, turns);
}

TEST(Plot, HasACurveForEachEntrantAndTheLimit) {
  Plot plot = made_up_plot();
  plot.series.push_back({.name = "limit", .points = {{4096, 0.5}}, .is_limit = true});
  const std::string script = script_for(plot, "a.svg");
  EXPECT_THAT(script, HasSubstr("set terminal svg"));
  EXPECT_THAT(script, HasSubstr("set title 'all_reduce, 2 ranks, heap'"));
  EXPECT_THAT(script, HasSubstr("$series0 << end\n4096 1.0000\nend"));
  EXPECT_THAT(script, HasSubstr("title 'it''s MPI'"));
  EXPECT_THAT(script, HasSubstr("$series3 using 1:2 with lines lw 2 dt 2"));
  EXPECT_THAT(script_for(plot, "a.png"), HasSubstr("set terminal pngcairo"));
}

TEST(Plot, IsRefusedBeforehandWhereItCannotBe) {
  EXPECT_THAT(can_plot("a.pdf").error().detail, HasSubstr("ends in .svg or .png, not 'a.pdf'"));
  EXPECT_THAT(can_plot("/no/such/folder/a.svg").error().detail, HasSubstr("there is no folder /no/such/folder"));
}

TEST(Plot, IsDrawnByGnuplot) {
  if (!find_in_path("gnuplot")) GTEST_SKIP() << "no gnuplot here (Debian: gnuplot-nox)";
  const testing::Folder folder;
  const std::string file = folder.path() + "/figure.svg";
  const Status drawn = draw(made_up_plot(), file);
  ASSERT_TRUE(drawn.ok()) << drawn.error().detail;
  const std::string svg = testing::read_file(file);
  for (const char* words : {"<svg", "tutti", "it's MPI", "Gloo", "vector on a rank", "microseconds"})
    EXPECT_THAT(svg, HasSubstr(words));
}

Program shell(const std::string& script) {
  return {.path = "/bin/sh", .arguments = {"-c", script}, .environment = clean_environment()};
}

TEST(Programs, AreRunTogetherAndTheFirstIsHeard) {
  const auto said =
      run_together({shell("read x; echo \"got $x\""), shell("echo other; exit 0")}, Deadline::after_seconds(60));
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(*said, "got \n");
  Program with_input = shell("read x; echo \"got $x\"");
  with_input.input = "words\n";
  EXPECT_EQ(*run_program(with_input, Deadline::after_seconds(60)), "got words\n");
}

TEST(Programs, ThatFailOrHangAreErrorsWithTheirLastOutput) {
  const auto failed =
      run_together({shell("exec sleep 1000"), shell("echo it broke >&2; exit 3")}, Deadline::after_seconds(60));
  EXPECT_EQ(failed.error().detail, "sh exited with code 3; its last words: it broke");
  Program server = shell("exec sleep 1000");
  server.is_server = true;
  EXPECT_EQ(*run_together({shell("echo done"), server}, Deadline::after_seconds(60)), "done\n");
  Program gone = shell("echo no port >&2");
  gone.is_server = true;
  EXPECT_EQ(run_together({shell("exec sleep 1000"), gone}, Deadline::after_seconds(60)).error().detail,
            "sh exited with code 0; its last words: no port");
  const auto hung = run_program(shell("exec sleep 1000"), Deadline::after_seconds(0.2));
  EXPECT_EQ(hung.error().code, Code::kTimeout);
  EXPECT_EQ(hung.error().detail, "sh has not ended");
}

TEST(TurnsOfEntrants, BeginWithAnotherOneEachTime) {
  std::vector<std::string> order;
  const auto made_up = [&](const std::string& key) {
    Entrant made = entrant(key, key);
    made.part = [](const Task& task) { return task.items; };
    made.run = [&order, key](const Task&, const std::vector<Item>&) -> Result<PeerFigures> {
      order.push_back(key);
      return one(k4K, 1);
    };
    return made;
  };
  Entrant idle = made_up("idle");
  idle.part = [](const Task&) { return std::vector<Item>(); };
  const std::vector<Entrant> entrants = {made_up("a"), made_up("b"), idle};
  const Task task{.items = {k4K}};
  EXPECT_EQ(steps_of(entrants, task, 3), 6);
  ProgressLine progress(6);
  const auto turns = run_turns(entrants, task, 3, "words", progress);
  ASSERT_TRUE(turns.ok());
  EXPECT_THAT(order, ElementsAre("a", "b", "b", "a", "a", "b"));
  EXPECT_EQ(turns->us("a", k4K).count, 3);
  EXPECT_EQ(turns->us("idle", k4K).count, 0);
}

TEST(TurnsOfEntrants, AnErrorNamesWhoCouldNotBeMeasured) {
  Entrant broken = entrant(kOurs, "tutti");
  broken.part = [](const Task& task) { return task.items; };
  int runs = 0;
  broken.run = [&runs](const Task&, const std::vector<Item>&) -> Result<PeerFigures> {
    ++runs;
    return Error{.code = Code::kSystem, .detail = "it broke"};
  };
  ProgressLine progress(1);
  EXPECT_EQ(run_turns({broken}, {.items = {k4K}}, 2, "2 ranks", progress).error().detail,
            "tutti could not be measured (2 ranks): it broke");
  EXPECT_EQ(runs, 1);
  // A peer is only left out.
  broken.key = "mpi", broken.name = "Open MPI";
  ::testing::internal::CaptureStderr();
  const auto turns = run_turns({broken}, {.items = {k4K}}, 2, "2 ranks", progress);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("Open MPI could not be measured (2 ranks): it broke; it is left out"));
  ASSERT_TRUE(turns.ok());
  EXPECT_EQ(turns->us("mpi", k4K).count, 0);
  EXPECT_EQ(runs, 2);
}

TEST(Rivals, ThatAreNotKnownGetTheNearestName) { EXPECT_EQ(rival("glo", nullptr).error().hint, "did you mean gloo?"); }

TEST(TwoNamespaces, ReachOneAnother) {
  auto hosts = TwoHosts::make();
  if (!hosts.ok()) GTEST_SKIP() << hosts.error().detail;
  const auto address = run_program((*hosts)->on(1, shell("ip -brief address show cable")), Deadline::after_seconds(60));
  ASSERT_TRUE(address.ok()) << address.error().detail;
  EXPECT_THAT(*address, HasSubstr("10.77.0.2/24"));
}

}  // namespace
}  // namespace tutti::bench
