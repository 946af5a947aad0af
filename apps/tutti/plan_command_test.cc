// `tutti plan` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/text.h"
#include "tutti/comm/verb.h"
#include "tutti/planning/training/cluster_file.h"

namespace tutti {
namespace {

using testing::Ended;
using ::testing::HasSubstr;
using testing::run;
using ::testing::StartsWith;

nlohmann::json only_line(const Ended& ended) {
  EXPECT_EQ(ended.err, "");
  const auto lines = split(trim(ended.out), '\n');
  EXPECT_EQ(lines.size(), 1u) << ended.out;
  return nlohmann::json::parse(lines[0]);
}

TEST(PlanCommand, PredictsWhatTheTableChooses) {
  const Ended ended = run({"plan", "all_reduce", "--ranks", "64", "--hosts", "8", "--bytes", "1M", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto line = only_line(ended);
  EXPECT_EQ(line["algorithm"], "halving_doubling");
  EXPECT_EQ(line["chosen"], true);
  EXPECT_EQ(line["ranks"], 64);
  EXPECT_EQ(line["hosts"], 8);
  EXPECT_EQ(line["bytes"], 1 << 20);
  EXPECT_EQ(line["right"], true);
  EXPECT_EQ(line["bytes_of_a_host"], 2 * 7 * (1 << 20) / 8);
  EXPECT_GE(line["us"], line["bound_us"]);
}

TEST(PlanCommand, ComparesAllForPeople) {
  const Ended ended = run({"plan", "all_reduce", "--hosts", "8,8,2", "--bytes", "64K", "--algorithm", "all"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("all_reduce of 64 KiB (f32), 18 ranks on 3 hosts of 2 to 8\n"));
  for (const char* word : {"ring ", "recursive_doubling", "halving_doubling", "bruck", "mesh", "two_level *", "bound"})
    EXPECT_THAT(ended.out, HasSubstr(word));
  EXPECT_THAT(ended.out, ::testing::Not(HasSubstr("WRONG")));
}

TEST(PlanCommand, OneRankIsOne) {
  EXPECT_THAT(run({"plan", "all_reduce", "--ranks", "1", "--bytes", "64K"}).out,
              StartsWith("all_reduce of 64 KiB (f32), 1 rank on one host\n"));
  EXPECT_THAT(run({"plan", "all_reduce", "--ranks", "2", "--hosts", "2", "--bytes", "64K"}).out,
              StartsWith("all_reduce of 64 KiB (f32), 2 ranks, each on a host of its own\n"));
}

TEST(PlanCommand, ShowsTheStepsOfARank) {
  const Ended ended = run(
      {"plan", "all_reduce", "--ranks", "4", "--bytes", "64", "--algorithm", "ring", "--rank", "1", "--steps", "3"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("ring, rank 1: 12 steps\n"
                                   "      0  send in[16, 32) to rank 2\n"
                                   "      1  receive from rank 0, add to in[0, 16) into out[0, 16)\n"
                                   "      2  send out[0, 16) to rank 2 after 1\n"
                                   "  ...\n"));
}

TEST(PlanCommand, EveryVerb) {
  for (int i = 0; i <= int(kLastCollective); ++i) {
    const Kind kind = Kind(i);
    if (is_uneven(kind)) continue;
    const std::string verb = name(kind);
    std::vector<std::string> words = {"plan", verb,       "--ranks", "7",      "--hosts", "3",     "--algorithm",
                                      "all",  "--jitter", "0.5",     "--seed", "3",       "--json"};
    if (kind != Kind::kBarrier) words.insert(words.end(), {"--bytes", "10000"});
    if (has_root(kind)) words.insert(words.end(), {"--root", "2"});
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 0) << verb << ended.err << ended.out;
  }
}

TEST(PlanCommand, TheSameSeedTheSameTime) {
  const std::vector<std::string> command = {"plan", "broadcast", "--ranks", "9", "--jitter", "1", "--json", "--seed"};
  const auto with = [&](const char* seed) {
    std::vector<std::string> words = command;
    words.emplace_back(seed);
    return run(words).out;
  };
  EXPECT_EQ(with("5"), with("5"));
  EXPECT_NE(with("5"), with("6"));
}

TEST(PlanCommand, AFaultIsExplained) {
  const Ended ended = run({"plan", "all_reduce", "--ranks", "8", "--bytes", "1M", "--dies", "3@50us"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, HasSubstr("not finished: rank 3 died at 50 us; ranks 0-2, 4-7 wait"));
  const Ended slow = run({"plan", "all_reduce", "--ranks", "8", "--bytes", "1M", "--slow", "3@10", "--json"});
  EXPECT_EQ(slow.code, 0);
  EXPECT_GT(only_line(slow)["us"],
            2 * only_line(run({"plan", "all_reduce", "--ranks", "8", "--json"}))["us"].get<double>());
}

TEST(PlanCommand, SimulatesWholeElementsPerRankAndReportsTheBytesUsed) {
  const std::vector<std::string> words = {"plan", "all_gather", "--ranks", "7", "--bytes", "10000"};
  EXPECT_THAT(run(words).out, HasSubstr("9996 of the 10000 bytes: a part of 357 whole elements for each rank\n"));
  auto json = words;
  json.emplace_back("--json");
  EXPECT_EQ(only_line(run(json))["bytes"], 9996);
  EXPECT_THAT(run({"plan", "all_gather", "--ranks", "4", "--bytes", "64K"}).out, ::testing::Not(HasSubstr("whole")));
  EXPECT_EQ(run({"plan", "all_gather", "--ranks", "3", "--bytes", "0"}).code, 0);
  EXPECT_THAT(run({"plan", "barrier", "--ranks", "4"}).out, StartsWith("barrier, 4 ranks, each on a host of its own"));
}

TEST(PlanCommand, WhatIsTooLargeIsSaid) {
  const Ended ended = run({"plan", "all_to_all", "--ranks", "20000", "--bytes", "64M"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr("not simulated: the plans of 20000 ranks have"));
}

TEST(PlanCommand, MistakesAreSentences) {
  const auto mistake = [](std::vector<std::string> words, const char* sentence) {
    words.insert(words.begin(), "plan");
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 2) << sentence;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
    EXPECT_EQ(ended.out, "");
  };
  mistake({},
          "tutti plan: no verb given. Usage: tutti plan VERB --ranks N [OPTIONS]\nhint: for example: tutti plan "
          "all_reduce");
  mistake({"all_reduec", "-n", "4"}, "there is no verb 'all_reduec'\nhint: did you mean all_reduce?");
  mistake({"all_reduce"}, "no --ranks given");
  mistake({"all_reduce", "-n", "0"}, "--ranks needs a number from 1 to 1048576, not '0'");
  mistake({"all_reduce", "-n", "4", "--hosts", "5"}, "--hosts 5 are more than the 4 ranks");
  mistake({"all_reduce", "-n", "4", "--hosts", "3,2"}, "--hosts 3,2 are 5 ranks, but --ranks is 4");
  mistake({"all_reduce", "--hosts", "3,x"}, "each part of --hosts needs a number from 1 to 1048576, not 'x'");
  mistake({"all_reduce", "-n", "4", "--algorithm", "rign"}, "there is no algorithm 'rign'\nhint: did you mean ring?");
  mistake({"all_reduce", "-n", "4", "--algorithm", "binomial"},
          "there is no binomial for all_reduce\nhint: known: ring, recursive_doubling,");
  mistake({"all_reduce", "-n", "4", "--bytes", "much"},
          "--bytes needs a size from 0 B to 16 TiB such as 4096, 64K or 64M, not 'much'");
  mistake({"all_reduce", "-n", "4", "--bytes", "100T"}, "--bytes needs a size from 0 B to 16 TiB such as");
  mistake({"all_reduce", "-n", "4", "--bytes", ""}, "--bytes: an empty value");
  mistake({"all_gather", "-n", "3", "--bytes", "4"},
          "--bytes 4 holds no element of f32 for each of 3 ranks\nhint: --bytes 12 or more");
  mistake({"all_reduce", "-n", "4", "--root", "2"}, "all_reduce has no root\nhint: drop --root");
  mistake({"broadcast", "-n", "4", "--root", "4"}, "--root needs a number from 0 to 3, not '4'");
  mistake({"barrier", "-n", "4", "--bytes", "8"}, "barrier has no bytes\nhint: drop --bytes");
  mistake({"all_reduce", "-n", "4", "--steps", "3"}, "--steps says how many steps of a rank are shown");
  mistake({"all_reduce", "-n", "4", "--dies", "9@1us"},
          "--dies 9@1us: '9' is none of the 4 ranks\nhint: they are 0 to 3");
  mistake({"all_reduce", "-n", "4", "--cut", "3-x@1us"}, "--cut 3-x@1us: 'x' is none of the 4 ranks");
  mistake({"all_reduce", "-n", "4", "--latency", "fast"}, "--latency needs a duration such as 10us or 1ms, not 'fast'");
  mistake({"all_reduce", "-n", "4", "--bandwidth", "0"}, "--bandwidth needs a number above 0, not '0'");
  mistake({"all_reduce", "-n", "4", "--rank", "4"}, "--rank needs a number from 0 to 3, not '4'");
  mistake({"all_reduce", "-n", "4", "--dies", "3"}, "--dies needs a rank and a time such as 3@50us, not '3'");
  mistake({"all_reduce", "-n", "4", "--cut", "3@1us"},
          "--cut needs two ranks and a time such as 3-4@50us, not '3@1us'");
  mistake({"all_reduce", "-n", "4", "--cut", "3-3@1us"}, "--cut 3-3@1us: rank 3 has no link to itself");
  mistake({"all_reduce", "-n", "4", "--bytes", "3"}, "--bytes 3 is no whole number of f32, of 4 bytes each");
  mistake({"all_reduce", "-n", "4", "--bytes", "1M", "--segment", "1"},
          "--segment 1 cuts 1 MiB into 1048576 pieces, and the simulator takes 65536\nhint: --segment 16 or more");
  mistake({"all_reduce", "-n", "4", "--slow", "9@2"}, "--slow 9@2: '9' is none of the 4 ranks");
  mistake({"all_reduce", "-n", "4", "--rnak", "3"}, "unknown option --rnak\nhint: did you mean --rank?");
}

TEST(PlanPipeline, DrawsASchedule) {
  const Ended ended = run({"plan", "pipeline", "--stages", "2", "--microbatches", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "1f1b: 2 ranks, 2 microbatches, bubble 50.0 %\n"
            "rank 0 |F0 F1 ......B0--- ...B1--- |\n"
            "rank 1 |...F0 B0--- F1 B1--- ......|\n"
            "time 9, of which the busiest rank works 6; bubble by the formula: 50.0 %\n"
            "kept at most (activations of a rank's layers for one microbatch): 2 1\n");
}

TEST(PlanPipeline, SaysItInJson) {
  const auto line = only_line(run({"plan", "pipeline", "-p", "4", "-m", "8", "--schedule", "interleaved", "--json"}));
  EXPECT_EQ(line["chunks"], 2);
  EXPECT_DOUBLE_EQ(line["bubble"], 0.1875);
  EXPECT_EQ(line["most_kept"], (std::vector{5.5, 4.5, 3.5, 2.5}));
  EXPECT_THAT(std::string(line["actions"][3]), StartsWith("F0a F1a F2a F3a F0b B0b F1b B1b"));
}

TEST(PlanPipeline, ComparesAll) {
  const Ended ended = run({"plan", "pipeline", "--stages", "4", "--microbatches", "8", "--schedule", "all"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* row : {"fill-drain        1         33    37.5 %       37.5 %          8",
                          "zb-h1             1         27    12.5 %       12.5 %          4",
                          "zb-v              2       25.5     6.2 %        6.2 %          4"})
    EXPECT_THAT(ended.out, HasSubstr(row));
}

TEST(PlanPipeline, DrawsWhatWasMeasured) {
  const std::string path = ::testing::TempDir() + "plan_pipeline_measured.json";
  std::ofstream(path)
      << R"({"tutti_pipeline": 1, "title": "two ranks", "chunks": 1, "ranks": [[["F0", 0.5, 1], ["B0", 2, 3]], [["F0", 1, 1.5], ["B0", 1.5, 2]]]})";
  const Ended ended = run({"plan", "pipeline", "--measured", path, "--svg", path + ".svg"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "two ranks: bubble 66.7 %\n"
            "rank 0 |F0 ......B0--- |\n"
            "rank 1 |...F0 B0 ......|\n"
            "time 2.5 s, of which the busiest rank works 1.5 s\n"
            "kept at most (activations of a rank's layers for one microbatch): 1 1\n");
  std::ifstream svg(path + ".svg");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(svg), {}), HasSubstr("<title>B0 1.5 s to 2.5 s</title>"));
  const auto line = only_line(run({"plan", "pipeline", "--measured", path, "--json"}));
  EXPECT_EQ(line["ranks"], 2);
  EXPECT_DOUBLE_EQ(line["seconds"], 2.5);
  const Ended both = run({"plan", "pipeline", "--measured", path, "--stages", "4"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("it takes no --stages"));
  std::ofstream(path) << "{}";
  const Ended other = run({"plan", "pipeline", "--measured", path});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("not a measured pipeline: no JSON object"));
  const Ended missing = run({"plan", "pipeline", "--measured", "/nowhere/a.json"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/a.json"));
}

TEST(PlanPipeline, MistakesAreSentences) {
  const auto says = [](std::vector<std::string> words, const char* sentence) {
    words.insert(words.begin(), {"plan", "pipeline"});
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
  };
  says({"--microbatches", "8"}, "no --stages given");
  says({"--stages", "4", "--microbatches", "8", "--schedule", "1f1c"}, "1f1b");
  says({"--stages", "4", "--microbatches", "0"}, "--microbatches needs a number from 1 to 1048576");
  says({"--stages", "4", "--microbatches", "8", "--schedule", "zb-v", "--chunks", "3"}, "a V has two arms");
  says({"--stages", "4", "--microbatch", "8"}, "--microbatches");
  const Ended unwritable = run({"plan", "pipeline", "-p", "4", "-m", "8", "--svg", "/nowhere/a.svg"});
  EXPECT_EQ(unwritable.code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("cannot write /nowhere/a.svg"));
}

TEST(PlanGrid, DrawsAndListsTheGroups) {
  const Ended ended = run({"plan", "grid", "--ranks", "16", "--tp", "2", "--pp", "4", "--hosts", "4"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("tp=2 x dp=2 x pp=4 (16 ranks), order tp-cp-ep-dp-pp, 4 hosts\n\n"
                                    "       dp 0        dp 1\n"
                                    "       tp 0 tp 1   tp 0 tp 1\n"
                                    "pp 0      0    1      2    3\n"));
  for (const char* row : {"axes       groups   size  hosts  at once  ranks\n",
                          "tp              8      2      1        -  [0 1] [2 3] [4 5] [6 7] [8 9] [10 11] ",
                          "dp              8      2      1        -  [0 2] [1 3] [4 6] [5 7] [8 10] [9 11] ",
                          "pp              4      4      4        4  [0 4 8 12] [1 5 9 13] [2 6 10 14] ",
                          "tp-pp           2      8      4        2  [0 1 4 5 8 9 12 13] "})
    EXPECT_THAT(ended.out, HasSubstr(row));
}

TEST(PlanGrid, ListsOneKindOfGroupsAndOneRank) {
  EXPECT_EQ(run({"plan", "grid", "--tp", "2", "--dp", "2", "--pp", "2", "--axis", "dp"}).out,
            "[0 2]\n[1 3]\n[4 6]\n[5 7]\n");
  EXPECT_EQ(run({"plan", "grid", "--tp", "2", "--dp", "2", "--pp", "2", "--order", "tp-pp-dp", "--axis", "dp"}).out,
            "[0 4]\n[1 5]\n[2 6]\n[3 7]\n");
  EXPECT_EQ(run({"plan", "grid", "--ranks", "16", "--tp", "2", "--pp", "4", "--hosts", "2", "--rank", "13"}).out,
            "rank 13, host 1\n"
            "tp        1 of 2, in [12 13]\n"
            "dp        0 of 2, in [13 15]\n"
            "pp        3 of 4, in [1 5 9 13]\n"
            "tp-pp     in [0 1 4 5 8 9 12 13]\n"
            "sends to rank -, receives from rank 9\n");
}

TEST(PlanGrid, SaysItInJson) {
  const auto line =
      only_line(run({"plan", "grid", "--ranks", "8", "--tp", "2", "--cp", "2", "--hosts", "4,4", "--json"}));
  EXPECT_EQ(line["ranks"], 8);
  EXPECT_EQ(line["dp"], 2);
  EXPECT_EQ(line["hosts"], 2);
  EXPECT_EQ(line["groups"]["dp"]["at_once"], 4);
  EXPECT_EQ(line["groups"]["cp"]["ranks"], (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(line["groups"]["dp-cp"]["ranks"], (std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_FALSE(line["groups"].contains("pp"));
}

TEST(PlanGrid, WritesThePicture) {
  const std::string path = ::testing::TempDir() + "plan_grid.svg";
  const Ended ended = run({"plan", "grid", "--ranks", "4", "--tp", "2", "--svg", path});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the picture is in " + path));
  EXPECT_THAT(testing::read_file(path), HasSubstr("<title>rank 3: tp 1, dp 1</title>"));
}

TEST(PlanGrid, MistakesAreSentences) {
  const auto says = [](std::vector<std::string> words, const char* sentence) {
    words.insert(words.begin(), {"plan", "grid"});
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
    EXPECT_EQ(ended.out, "");
  };
  says({}, "no --ranks given");
  says({"--ranks", "15", "--tp", "2"},
       "15 ranks cannot be laid out as tensor 2 x pipeline 1 x context 1 (= 2) x data: start 14 or 16 ranks");
  says({"--ranks", "16", "--tp", "2", "--dp", "4"}, "--ranks is 16, but the sizes with --dp 4 make 8 ranks");
  says({"--tp", "0"}, "--tp needs a number from 1 to 1048576, not '0'");
  says({"--dp", "1048576", "--tp", "1024"}, "the sizes make 1073741824 ranks, and at most 1048576 can be planned");
  says({"--ranks", "16", "--hosts", "8,4"}, "--hosts 8,4 are 12 ranks, but --ranks is 16");
  says({"--ranks", "16", "--tp", "2", "--order", "tp-pp"}, "the order \"tp-pp\" leaves out \"dp\", whose size is 8");
  says({"--ranks", "16", "--axis", "dq"}, "has \"dq\", expected some of tp, cp, ep, dp, pp");
  says({"--ranks", "16", "--rank", "16"}, "--rank needs a number from 0 to 15, not '16'");
  says({"--ranks", "16", "--axis", "dp", "--json"}, "--json, --axis and --rank each say what is printed");
  says({"--ranks", "16", "--tpp", "2"}, "unknown option --tpp");
}

TEST(PlanMeasure, WritesAClusterThatCanBeRead) {
  const std::string path = ::testing::TempDir() + "plan_measure.toml";
  const Ended ended = run({"plan", "measure", "-n", "2", "-o", path, "--name", "mine", "--shapes", "8x16x24"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the cluster is in " + path));
  EXPECT_THAT(ended.out, StartsWith("all_reduce of 64 KiB: measured "));
  EXPECT_THAT(ended.out, HasSubstr("1 node of 2 ranks, "));
  const Cluster cluster = read_cluster(path).or_throw();
  EXPECT_EQ(cluster.name, "mine");
  EXPECT_EQ(cluster.devices(), 2);
  // 3 kinds, with one rank at work and with both.
  EXPECT_EQ(cluster.device.products.size(), 6u);
  EXPECT_EQ(cluster.device.products.back().k, 24);
  EXPECT_EQ(cluster.device.products.back().busy, 2);
}

// Two hosts that are this one, whose ranks see each other over TCP alone. What a login shell prints is not in the
// file.
TEST(PlanMeasure, HostsAreReachedAsTuttiRunReachesThem) {
  const testing::Folder folder;
  const std::string rsh = folder.path() + "/rsh", path = folder.path() + "/cluster.toml";
  std::ofstream(rsh) << "#!/bin/sh\necho \"Welcome to $1!\"; exec sh -c \"$2\"\n";
  std::filesystem::permissions(rsh, std::filesystem::perms::owner_all);
  const Ended ended = run({"plan", "measure", "--hosts", "a:1,b:1", "--ssh", rsh, "--shapes", "8x16x24", "-o", path},
                          {{"TUTTI_TRANSPORT", "tcp"}});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("2 nodes of 1 rank, "));
  EXPECT_THAT(ended.out, HasSubstr("between hosts: "));
  const Cluster cluster = read_cluster(path).or_throw();
  EXPECT_EQ(cluster.nodes[0].count, 2);
  EXPECT_GT(cluster.network.between.bandwidth, 0);
  EXPECT_THAT(testing::read_file(path), StartsWith("# measured by tutti "));
}

TEST(PlanMeasure, AJobThatFailsLeavesNoFile) {
  const testing::Folder folder;
  const std::string path = folder.path() + "/cluster.toml";
  const Ended ended = run({"plan", "measure", "--hosts", "a:1", "--ssh", "false", "-o", path});
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("a did not start tutti"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PlanMeasure, MistakesAreSentences) {
  const auto says = [](std::vector<std::string> words, const char* sentence) {
    words.insert(words.begin(), {"plan", "measure"});
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
    EXPECT_EQ(ended.out, "");
  };
  says({"--shapes", "512x768"}, "--shapes needs layers such as 512x768x3072 (rows, outputs and inputs,");
  says({"--shapes", "512x768x0"}, "not '512x768x0'");
  says({"-n", "two"}, "-n");
  says({"-n", "2", "--hosts", "localhost:2"}, "one of them is enough");
  says({"--shape", "8x8x8"}, "did you mean --shapes?");
}

}  // namespace
}  // namespace tutti
