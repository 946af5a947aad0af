// train_image as a program: alone and on ranks, what it prints, what it saves, and what it says to mistakes.
#include "tests/train/train_image.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {
namespace {

using test::bytes_of;
using test::TrainImage;
using test::write_idx;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(TrainImage, LearnsAloneAndOnRanksAndPrintsTheSameKeysAsThePeer) {
  for (int ranks : {0, 2}) {
    const auto begin = now();
    const auto ended =
        train(ranks, {"--batch-size", ranks == 0 ? "32" : "16", "--epochs", "2", "--lr", "0.02", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto json = json_of(ended);
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(key);
    EXPECT_THAT(keys, ElementsAre("peer", "torch", "model", "world", "batch_per_rank", "steps", "ms_per_step",
                                  "median_ms_per_step", "samples_per_s", "test_accuracy", "test_loss", "last_loss",
                                  "data_parallel"));
    EXPECT_EQ(json["data_parallel"]["steps"], 62);
    EXPECT_EQ(json["data_parallel"]["rebuilt"], true);
    EXPECT_EQ(json["data_parallel"]["buckets"][0][0], "fc2.bias");
    EXPECT_EQ(json["peer"], "tutti");
    EXPECT_EQ(json["world"], ranks == 0 ? 1 : 2);
    EXPECT_EQ(json["steps"], 2 * (31 - 3)) << "1000 samples, the first three steps of an epoch are not timed";
    EXPECT_GT(json["median_ms_per_step"], 0.0);
    const double ms_per_step = json["ms_per_step"];
    EXPECT_NEAR(json["samples_per_s"].get<double>() * ms_per_step / 1e3, 32, 0.5) << "samples of a step, of all ranks";
    EXPECT_LE(json["steps"].get<double>() * ms_per_step, 1e3 * seconds_since(begin)) << "timed within the program";
    EXPECT_GE(json["test_accuracy"], 0.9);
    EXPECT_THAT(ended.err + ended.out, HasSubstr("step 62/62  loss "));
  }
}

TEST_F(TrainImage, RanksTrainToTheWeightsOfOneProcess) {
  const auto file = [&](int ranks) { return folder_.path() + "/weights" + std::to_string(ranks) + ".safetensors"; };
  for (int ranks : {0, 2}) {
    const auto ended = train(
        ranks, {"--batch-size", ranks == 0 ? "32" : "16", "--max-steps", "6", "--seed", "3", "--save", file(ranks)});
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  const auto alone = SafetensorsFile::open(file(0)), together = SafetensorsFile::open(file(2));
  ASSERT_TRUE(alone.ok() && together.ok());
  ASSERT_EQ(together->entries().size(), 8u);
  EXPECT_EQ(together->metadata().at("model"), "cnn");
  double largest = 0;
  for (const auto& entry : alone->entries()) {
    std::vector<float> one(entry.bytes() / 4), two(entry.bytes() / 4);
    ASSERT_TRUE(alone->read(entry, std::as_writable_bytes(std::span(one))).ok());
    ASSERT_TRUE(together->read(*together->find(entry.name), std::as_writable_bytes(std::span(two))).ok());
    for (std::size_t i = 0; i < one.size(); ++i) largest = std::max(largest, double(std::abs(one[i] - two[i])));
  }
  EXPECT_LE(largest, 1e-5) << "batches of 2 x 16 are the batches of 32: sample k of rank r is sample 2 k + r";
}

TEST_F(TrainImage, AnyNumberOfProcessesGivesTheBitsOfTheLogicalRanks) {
  std::string alone, scores;
  for (const int ranks : {1, 2, 4}) {
    const std::string file = folder_.path() + "/logical.safetensors";
    const auto ended =
        train(ranks, {"--logical-ranks", "4", "--batch-size", "16", "--max-steps", "5", "--dropout", "0.2",
                      "--optimizer", "adam", "--clip-grad-norm", "1", "--sharded", "off", "--json", "--save", file});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto json = json_of(ended);
    const auto found = json["last_loss"].dump() + ", " + json["test_loss"].dump() + ", " + json["test_accuracy"].dump();
    if (ranks == 1) alone = bytes_of(file), scores = found;
    EXPECT_EQ(bytes_of(file), alone) << ranks << " processes";
    EXPECT_EQ(found, scores) << ranks << " processes";
  }
  EXPECT_GT(alone.size(), 4'000'000u);
}

// As users start it: `tutti run` gives a process alone more BLAS threads than each of several.
TEST_F(TrainImage, LogicalRanksHaveTheirBitsWithoutAVariable) {
  for (const std::string model : {"cnn", "mlp"}) {
    const std::vector<std::string> options = {"--model",      model, "--logical-ranks", "4",
                                              "--batch-size", "16",  "--max-steps",     "3"};
    const std::string alone = weights_of(0, options);
    EXPECT_GT(alone.size(), 4'000'000u);
    for (const int ranks : {1, 2, 4})
      EXPECT_TRUE(weights_of(ranks, options) == alone) << model << " on " << ranks << " launched processes";
    EXPECT_TRUE(weights_of(2, options, kThreeThreads) == alone) << model << " on 2, of three threads";
  }
}

TEST_F(TrainImage, DeterministicHasItsBitsWithoutAVariable) {
  for (const std::string model : {"cnn", "mlp"}) {
    const std::vector<std::string> options = {"--model",     model, "--deterministic", "--batch-size", "64",
                                              "--max-steps", "3"};
    const std::string alone = weights_of(0, options);
    EXPECT_TRUE(weights_of(1, options) == alone) << model << ", launched";
    EXPECT_TRUE(weights_of(0, options, kThreeThreads) == alone) << model << ", three threads";
    for (const int ranks : {2, 4})
      EXPECT_TRUE(weights_of(ranks, options) == weights_of(ranks, options, kThreeThreads))
          << model << " on " << ranks << " processes, three threads each";
  }
}

// On two processes by a sharded optimizer.
TEST_F(TrainImage, LogicalRanksMayBeNoPowerOfTwo) {
  const std::string file = folder_.path() + "/six.safetensors";
  std::string alone;
  for (const int ranks : {1, 2}) {
    const auto ended = train(ranks, {"--logical-ranks", "6", "--batch-size", "8", "--max-steps", "3", "--save", file});
    ASSERT_EQ(ended.code, 0) << ended.err;
    if (ranks == 1) alone = bytes_of(file);
    EXPECT_EQ(bytes_of(file), alone) << ranks << " processes";
  }
}

// With a rate of 0 the loss of a step shows nothing but its batch.
TEST_F(TrainImage, EachStepAndEachEpochHasSamplesOfItsOwn) {
  const auto loss = [&](const std::string& epochs, const std::string& steps) {
    const auto ended =
        train(0, {"--lr", "0", "--batch-size", "16", "--epochs", epochs, "--max-steps", steps, "--json"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return json_of(ended)["last_loss"].get<double>();
  };
  const std::set<double> losses = {loss("1", "1"), loss("1", "2"), loss("2", "1")};
  EXPECT_EQ(losses.size(), 3u) << "the first step, the second, and the first of the second epoch";
}

// All samples are the same one, so whoever drops out the same makes the same gradient, and their mean is that of one.
TEST_F(TrainImage, RanksAndPassesDropOutDifferently) {
  write_idx(folder_.path() + "/train-images-idx3-ubyte", {64, 28, 28}, std::string(64 * 28 * 28, char(128)));
  write_idx(folder_.path() + "/train-labels-idx1-ubyte", {64}, std::string(64, '\3'));
  const auto weights = [&](int ranks, const std::string& dropout, std::vector<std::string> more) {
    const std::string file = folder_.path() + "/weights.safetensors";
    more.insert(more.end(), {"--batch-size", "16", "--max-steps", "2", "--dropout", dropout, "--save", file});
    const auto ended = train(ranks, more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return bytes_of(file);
  };
  const std::vector<std::pair<int, std::vector<std::string>>> ways = {
      {2, {}}, {2, {"--sharded", "off"}}, {1, {"--accumulate", "2"}}, {1, {"--logical-ranks", "2"}}};
  const auto alone = weights(1, "0", {}), alone_with_dropout = weights(1, "0.5", {});
  for (const auto& [ranks, way] : ways) {
    const std::string words = way.empty() ? "sharded" : way[0];
    EXPECT_EQ(weights(ranks, "0", way), alone) << words;
    EXPECT_NE(weights(ranks, "0.5", way), alone_with_dropout) << words;
  }
}

TEST_F(TrainImage, EveryWayToTrainLearns) {
  const std::vector<std::vector<std::string>> ways = {
      {"--optimizer", "adamw", "--stage", "2", "--sharded", "on", "--clip-grad-norm", "1"},
      {"--optimizer", "adagrad", "--sharded", "off", "--check-replicas", "10", "--check-gradients", "before"},
      {"--lr", "0.02", "--nesterov", "--accumulate", "2", "--loader-threads", "2"},
      // A CPU without bf16 instructions takes 15 times as long as in f32: half the samples.
      {"--lr", "0.02", "--precision", "bf16", "--compress", "bf16", "--batch-size", "8", "--max-steps", "31"},
      {"--lr", "0.02", "--compress", "f16", "--deterministic"},
      {"--lr", "0.02", "--compress", "powersgd", "--overlap", "on"},
  };
  for (const auto& way : ways) {
    std::vector<std::string> arguments = {"--batch-size", "16", "--epochs", "2", "--json"};
    arguments.insert(arguments.end(), way.begin(), way.end());
    const auto ended = train(2, arguments);
    ASSERT_EQ(ended.code, 0) << way[1] << ": " << ended.err;
    EXPECT_GE(json_of(ended)["test_accuracy"], 0.8) << way[0] << " " << way[1];
  }
}

// Products in f16, with a loss that is scaled: a CPU can do them from LibTorch 2.4 on.
TEST_F(TrainImage, LearnsInF16OrSaysWhyNot) {
  const auto version = json_of(train(0, {"--max-steps", "1", "--json"}))["torch"].get<std::string>();
  const std::vector<std::vector<std::string>> ways = {{"--sharded", "on"}, {"--sharded", "off", "--compress", "f16"}};
  for (const auto& way : ways) {  // the mlp: LibTorch 2.15 takes 8 seconds for a step of the cnn in f16
    std::vector<std::string> arguments = {"--model", "mlp",          "--lr", "0.02",        "--precision",
                                          "f16",     "--batch-size", "16",   "--max-steps", "12"};
    arguments.insert(arguments.end(), way.begin(), way.end());
    arguments.push_back("--json");
    const auto ended = train(2, arguments);
    if (version.starts_with("1.")) {
      EXPECT_EQ(ended.code, 2);
      EXPECT_THAT(ended.err,
                  AllOf(HasSubstr("--precision f16: LibTorch " + version + " cannot multiply f16 matrices"),
                        HasSubstr("hint: take --precision bf16, "), Not(HasSubstr("DType")), Not(HasSubstr("step "))));
    } else {
      ASSERT_EQ(ended.code, 0) << ended.err;
      EXPECT_GE(json_of(ended)["test_accuracy"], 0.8);
    }
  }
}

TEST_F(TrainImage, LeavesTracesTablesAndTensorBoardsFiles) {
  const std::string file = folder_.path() + "/new/trace.json", board = folder_.path() + "/board";
  auto ended = train(2, {"--batch-size", "16", "--max-steps", "4", "--overlap", "on", "--sharded", "off", "--trace",
                         file, "--profile", "--tensorboard", board});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("backward"), HasSubstr("# of Calls"), HasSubstr("rank 0, 4 steps:"),
                               HasSubstr("exposed communication ..")));
  EXPECT_FALSE(std::filesystem::is_empty(board));
  const auto trace = nlohmann::json::parse(bytes_of(file));
  std::set<std::string> regions, lanes, ranks;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") regions.insert(event.at("name"));
    if (event.at("name") == "thread_name") lanes.insert(event.at("args").at("name"));
    if (event.at("name") == "process_name") ranks.insert(event.at("args").at("name").get<std::string>().substr(0, 6));
  }
  EXPECT_THAT(regions,
              ::testing::IsSupersetOf({"data", "forward", "backward", "average gradients", "optimizer", "all_reduce"}));
  EXPECT_THAT(lanes, ::testing::IsSupersetOf({"main", "group world"}));
  EXPECT_THAT(ranks, ElementsAre("rank 0", "rank 1"));
  const auto of = [&](const std::string& name) {
    std::vector<nlohmann::json> found;
    for (const auto& event : trace.at("traceEvents"))
      if (event.at("ph") == "X" && event.at("name") == name) found.push_back(event);
    return found;
  };
  const auto number = [](const nlohmann::json& event, const char* key) { return event.at(key).get<double>(); };
  int under_backward = 0;
  for (const auto& backward : of("backward"))
    for (const auto& bucket : of("all_reduce"))
      under_backward += bucket.at("pid") == backward.at("pid") && number(bucket, "ts") > number(backward, "ts") &&
                        number(bucket, "ts") < number(backward, "ts") + number(backward, "dur");
  EXPECT_GE(under_backward, 2 * 4) << "a bucket of each rank and step begins to travel while backward goes on";

  const std::string traces = folder_.path() + "/traces";
  ended = train(2, {"--batch-size", "16", "--max-steps", "2", "--trace", traces});
  ASSERT_EQ(ended.code, 0) << ended.err;
  write_file(traces + "/trace-rank0007.json", "[]").or_throw();  // of an earlier run
  write_file(traces + "/trace-mine.json", "[]").or_throw();
  ended = train(2, {"--batch-size", "16", "--max-steps", "2", "--trace", traces});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(traces + ": removed the traces of 1 rank of an earlier, larger run"));
  EXPECT_FALSE(std::filesystem::exists(traces + "/trace-rank0007.json"));
  EXPECT_TRUE(std::filesystem::remove(traces + "/trace-mine.json"));
  const auto merged = tutti::testing::run({TUTTI_COMMAND, "trace", "merge", traces, "-o", file});
  EXPECT_EQ(merged.code, 0) << merged.err;
  EXPECT_THAT(merged.err, HasSubstr("events of 2 files in " + file));
  const auto itself = tutti::testing::run({TUTTI_COMMAND, "trace", "merge", file, "-o", file});
  EXPECT_EQ(itself.code, 2);
  EXPECT_THAT(itself.err, HasSubstr(file + " is both input and output"));
  EXPECT_GT(std::filesystem::file_size(file), 1000u) << "and is still there";
}

// However gradients are averaged, a trace shows where: on the thread that does it, and on the lane of its group.
TEST_F(TrainImage, EveryWayToAverageIsSeenInATrace) {
  const std::string with_peers = "average with peers", wait = "wait for peers";
  struct Way {
    int ranks;
    std::vector<std::string> options;
    std::vector<std::string> regions;
    std::string lane = "group world";
  };
  const std::vector<Way> ways = {
      {2, {}, {wait, "average and step with peers"}},
      {2, {"--clip-grad-norm", "1"}, {wait, with_peers, "step and give to peers"}},
      {2, {"--stage", "2"}, {wait, with_peers, "step and give to peers"}},
      {2, {"--sharded", "off", "--overlap", "off"}, {wait, with_peers}},
      {2, {"--sharded", "off", "--overlap", "off", "--check-gradients", "off"}, {with_peers}},
      {4, {"--logical-ranks", "4", "--overlap", "off"}, {with_peers}, "group world/world level 2"},
  };
  for (const auto& way : ways) {
    SCOPED_TRACE(join(way.options, " "));
    const std::string file = folder_.path() + "/trace.json";
    std::vector<std::string> arguments = {"--batch-size", "16", "--max-steps", "2", "--trace", file, "--profile"};
    arguments.insert(arguments.end(), way.options.begin(), way.options.end());
    const auto ended = train(way.ranks, arguments);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto trace = nlohmann::json::parse(bytes_of(file));
    std::map<std::pair<int, int>, std::string> threads;
    for (const auto& event : trace.at("traceEvents"))
      if (event.at("name") == "thread_name") threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    std::map<std::string, std::set<int>> on_thread, on_lane;  // ranks, by region
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const std::string& thread = threads[{event.at("pid"), event.at("tid")}];
      if (thread == "main") on_thread[event.at("name")].insert(event.at("pid").get<int>());
      if (thread == way.lane) on_lane[event.at("name")].insert(event.at("pid").get<int>());
    }
    for (const auto& region : way.regions) {
      EXPECT_EQ(on_thread[region].size(), std::size_t(way.ranks)) << region;
      EXPECT_EQ(on_lane[region].size(), std::size_t(way.ranks)) << region;
      EXPECT_THAT(ended.err, HasSubstr(region)) << "in the table";
    }
  }
}

TEST_F(TrainImage, StageTwoIsWhatItSaysOrRefused) {
  const std::string file = folder_.path() + "/trace.json";
  auto changes = kOneThread;
  changes["TUTTI_TRANSPORT"] = "tcp";
  const auto by_tcp = tutti::testing::run(
      command(2, {"--stage", "2", "--batch-size", "16", "--max-steps", "2", "--trace", file}), changes);
  ASSERT_EQ(by_tcp.code, 0) << by_tcp.err;
  EXPECT_THAT(bytes_of(file), AllOf(HasSubstr("reduce_scatter"), Not(HasSubstr("average gradients"))));
  const auto refused = train(4, {"--stage", "2", "--logical-ranks", "4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("--stage 2 and --logical-ranks were both given, on 4 processes"),
                    HasSubstr("leave one of them out, or start 1 or 2 processes"), Not(HasSubstr("step 1"))));
}

TEST_F(TrainImage, MistakesGetASentence) {
  auto ended = train(0, {"--modle", "mlp"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("unknown option --modle\nhint: did you mean --model?"));
  ended = train(0, {"--model", "rnn"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("rnn"));
  // All ranks make this mistake, and one prints it. If another ends first, only the report of the job has it.
  for (const auto& mistake : {std::vector<std::string>{"--modle", "mlp"}, {"--model", "rnn"}}) {
    ended = train(3, mistake);
    EXPECT_EQ(ended.code, 2);
    const std::string before_the_report = ended.err.substr(0, ended.err.find("the job failed"));
    std::size_t told = 0;
    for (std::size_t at = 0; (at = before_the_report.find("train_image: ", at)) != std::string::npos; ++at) ++told;
    EXPECT_LE(told, 1u) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("did you mean "));
  }
  const auto refused = [&](const std::string& option, const std::string& value, const std::string& words) {
    const auto told = train(0, {option, value});
    EXPECT_EQ(told.code, 2) << option << " " << value;
    EXPECT_EQ(told.err, "train_image: " + option + " needs a number " + words + ", not '" + value + "'\n");
  };
  for (const std::string value : {"0", "-1", "x", "1.5", "99999999999999999999"})
    refused("--batch-size", value, "from 1 to 1000000000");
  refused("--epochs", "0", "from 1 to 1000000000");
  refused("--max-steps", "-1", "from 0 to 1000000000");
  for (const std::string value : {"-1", "nan", "inf", "fast"}) refused("--lr", value, "from 0 up");
  for (const std::string value : {"nan", "1.1", "-0.1"}) refused("--momentum", value, "from 0 to 1");
  refused("--seed", "-1", "from 0 up");
  refused("--clip-grad-norm", "-1", "from 0 up");
  refused("--dropout", "2", "from 0 to 1");
  refused("--stage", "3", "from 1 to 2");
  EXPECT_THAT(train(0, {"--optimizer", "adan"}).err, HasSubstr("did you mean adam?"));
  EXPECT_THAT(train(0, {"--optimizer", "adam", "--nesterov"}).err, HasSubstr("--nesterov is for --optimizer sgd"));
  EXPECT_THAT(train(0, {"--optimizer", "adam", "--momentum", "0.5"}).err,
              HasSubstr("--momentum is for --optimizer sgd"));
  EXPECT_THAT(train(0, {"--logical-ranks", "2", "--accumulate", "2"}).err,
              HasSubstr("--accumulate and --logical-ranks were both given"));
  const auto together = [&](const std::vector<std::string>& options, const std::string& words) {
    const auto told = train(0, options);
    EXPECT_EQ(told.code, 2) << words;
    EXPECT_THAT(told.err, HasSubstr("train_image: " + words + " were both given\nhint: "));
  };
  together({"--logical-ranks", "2", "--compress", "bf16"}, "--compress and --logical-ranks");
  together({"--logical-ranks", "2", "--views"}, "--views and --logical-ranks");
  together({"--views", "--compress", "f16"}, "--compress and --views");
  together({"--sharded", "on", "--compress", "powersgd"}, "--compress and --sharded on");
  together({"--stage", "2", "--compress", "bf16"}, "--stage 2 and --compress");
  together({"--stage", "2", "--sharded", "off"}, "--stage 2 and --sharded off");
  together({"--stage", "2", "--overlap", "off"}, "--stage 2 and --overlap off");
  together({"--check-gradients", "off", "--compress", "f16"}, "--check-gradients off and --compress f16");
  together({"--sharded", "on", "--overlap", "on"}, "--sharded on and --overlap on");
  EXPECT_THAT(train(2, {"--logical-ranks", "3"}).err,
              AllOf(HasSubstr("3 logical ranks on 2 processes; expected a power of two"),
                    HasSubstr("(hint: start 1 process, or let the number of logical ranks be a multiple of 2)")));
  for (const std::string option : {"--save", "--trace", "--save-dir", "--lr"})
    EXPECT_THAT(train(0, {option, "", "--max-steps", "1"}).err,
                HasSubstr("train_image: " + option + ": an empty value (is a variable that it comes from not set?)"));
  ended = train(0, {"--batch-size", "5000"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("the batch size 5000 is larger than the 1000 samples of a rank (hint: take a "
                                   "smaller --batch-size)"));
  ended = train(2, {"--logical-ranks", "1000000", "--batch-size", "1"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("1000000 logical ranks, but only 1000 training samples"));
  ended = train(0, {"--data", "/nowhere"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("there is no folder /nowhere"), HasSubstr("apt-get install dataset-fashion-mnist")));
}

TEST_F(TrainImage, ALossThatIsNotANumberIsReportedWithStepAndRank) {
  for (const int ranks : {0, 2}) {
    const auto ended = train(ranks, {"--lr", "1e30", "--batch-size", "16"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("the loss of step 2 is not a number in the samples of rank "),
                                 HasSubstr("the learning rate is 1e+30: a smaller one, or --clip-grad-norm, may")));
  }
}

// With --compress f16 a step whose gradients overflow is left out, but a loss, whose products are in f32, does not come
// from that.
TEST_F(TrainImage, ALossThatIsNotANumberEndsTheRunUnderCompressionToo) {
  const std::string file = folder_.path() + "/nan.safetensors";
  auto ended =
      train(2, {"--lr", "1e30", "--max-steps", "4", "--batch-size", "16", "--compress", "f16", "--save", file});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("the loss of step 2 is not a number in the samples of rank "));
  EXPECT_FALSE(std::filesystem::exists(file));
  ended = train(2, {"--max-steps", "2", "--batch-size", "16", "--compress", "f16", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_GE(json_of(ended).at("left_out"), 0);
}

// The first step makes infinities of weights and finite gradients, so it is no rank's samples that are to blame.
TEST_F(TrainImage, ALossThatIsNotANumberNamesTheWeightThatWasNoneBefore) {
  const std::string hint = "; --check-gradients before reports the first gradient with a NaN";
  for (const std::string check : {"reduction", "before", "off"}) {
    const auto ended =
        train(2, {"--lr", "1e30", "--weight-decay", "1e30", "--batch-size", "16", "--check-gradients", check});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.err, HasSubstr(", because conv1.weight has had a NaN or an infinity since an earlier step"));
    EXPECT_EQ(ended.err.find(hint) != std::string::npos, check == "off") << ended.err;
  }
}

TEST_F(TrainImage, RanksWithDifferentOptionsAreReported) {
  const auto ended = tutti::testing::run({TUTTI_COMMAND, "run", "-n", "3", "--", "sh", "-c",
                                          "if [ $RANK = 0 ]; then lr=0.05; else lr=0.1; fi; exec \"$@\" --lr $lr", "sh",
                                          TRAIN_IMAGE, "--data", folder_.path()},
                                         {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--lr is 0.05 on rank 0, but 0.1 on ranks 1, 2"), Not(HasSubstr("step "))));
}

// Each host may have a folder of another name, but a save needs all ranks.
TEST_F(TrainImage, AFolderThatOneRankLacksIsAMistake) {
  const auto ended = tutti::testing::run({TUTTI_COMMAND, "run", "-n", "2", "--", "sh", "-c",
                                          "if [ $RANK = 0 ]; then set -- \"$@\" --save-dir $0/a; fi; exec \"$@\"",
                                          folder_.path(), TRAIN_IMAGE, "--data", folder_.path()},
                                         kOneThread);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--save-dir is given on rank 0, but not given on rank 1"));
}

TEST_F(TrainImage, HelpIsForPeople) {
  const auto ended = train(0, {"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"), HasSubstr("Output:"),
                               HasSubstr("--no-heap  "), Not(HasSubstr("{false}"))));
}

TEST_F(TrainImage, DamagedDataIsNamedWithItsByte) {
  write_idx(folder_.path() + "/train-labels-idx1-ubyte", {1000}, std::string(999, '\1'));
  const auto ended = train(2, {});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err + ended.out, AllOf(HasSubstr("train-labels-idx1-ubyte: byte 1007: expected 1 more bytes"),
                                           HasSubstr("the file ends")));
}

TEST_F(TrainImage, InvalidDataIsReportedBeforeTraining) {
  write_idx(folder_.path() + "/t10k-images-idx3-ubyte", {301, 14, 14}, std::string(301 * 14 * 14, '\1'));
  auto ended = train(2, {});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err + ended.out,
              AllOf(HasSubstr("t10k-images-idx3-ubyte: byte 8: expected images of 28 x 28"), Not(HasSubstr("step 1"))));
  const std::string pipe = folder_.path() + "/t10k-images-idx3-ubyte";
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ended = train(0, {});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr(pipe + " is not a regular file"));
}

TEST_F(TrainImage, AFolderThatCannotBeMadeIsReportedWithItsOptionAndAHint) {
  const auto refused = [&](int ranks, const std::string& option, const std::string& place, const std::string& words) {
    const auto ended = train(ranks, {option, place, "--max-steps", "1"});
    EXPECT_EQ(ended.code, 2) << option;
    EXPECT_THAT(ended.err, AllOf(HasSubstr(option + ": " + words), Not(HasSubstr("step 1"))));
  };
  const std::string none =
      "cannot make the folder /proc/none: No such file or directory (hint: give a folder that is "
      "there, or in a place where this user may make one)";
  for (const std::string option : {"--tensorboard", "--trace", "--save-dir"}) refused(0, option, "/proc/none", none);
  refused(0, "--trace", "/proc/none/t.json", none);
  refused(2, "--tensorboard", "/proc/none", none);
  refused(2, "--save-dir", "/proc/none", none);
  refused(0, "--save", "/proc/none/w",
          "cannot write /proc/none/w: the folder /proc/none: No such file or directory "
          "(hint: give another path, or make the folder)");
  // The folder is there, and takes no file; for root, too.
  for (const std::string option : {"--save", "--trace"}) {
    const auto ended = train(0, {option, "/proc/w.json", "--max-steps", "1"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, AllOf(HasSubstr(option + ": cannot create /proc/w.json.tmp."), Not(HasSubstr("step 1")),
                                 HasSubstr(": No such file or directory (hint: give a path in a folder that this user "
                                           "may write to)")));
  }
  refused(0, "--tensorboard", "/proc", "cannot create /proc/events.out.tfevents.");
  refused(0, "--trace", "/proc", "cannot create /proc/trace-rank0000.json.tmp.");
  refused(2, "--save-dir", "/proc", "cannot make a file in the folder /proc: No such file or directory (hint: give a");
}

TEST_F(TrainImage, TheLocalRankOfTheLauncherMustBeThatOfTheEnvironment) {
  const auto passed = tutti::testing::run(command(2, {"--max-steps", "1"}, {"--pass-local-rank"}), kOneThread);
  EXPECT_EQ(passed.code, 0) << passed.err;
  auto variables = kOneThread;
  variables["LOCAL_RANK"] = "1";
  const auto refused = tutti::testing::run(command(0, {"--max-steps", "1", "--local_rank=0"}), variables);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--local-rank is 0, but LOCAL_RANK is 1"));
  variables = kOneThread;
  variables["RANK"] = "0";
  variables["WORLD_SIZE"] = "1";
  const auto too_high = tutti::testing::run(command(0, {"--max-steps", "1", "--local-rank=3"}), variables);
  EXPECT_EQ(too_high.code, 2);
  EXPECT_THAT(too_high.err, HasSubstr("--local-rank is 3, not below WORLD_SIZE, which is 1"));
}

TEST_F(TrainImage, AFailureIsWrittenIntoTheErrorFileOfTheLauncher) {
  auto variables = kOneThread;
  variables["TORCHELASTIC_ERROR_FILE"] = folder_.path() + "/error.json";
  const auto message = [&](const std::vector<std::string>& arguments, int code) {
    EXPECT_EQ(tutti::testing::run(command(0, arguments), variables).code, code);
    const auto json = nlohmann::json::parse(std::ifstream(variables["TORCHELASTIC_ERROR_FILE"]), nullptr, false);
    return json.is_object() ? json["message"]["message"].get<std::string>() : std::string("(no file)");
  };
  EXPECT_THAT(message({"--data", "/nonexistent"}, 2), HasSubstr("/nonexistent"));
  EXPECT_THAT(message({"--epochs", "many"}, 2), HasSubstr("--epochs needs a number"));
}

// OpenMP prints its settings when it is loaded; it spins 0 times where OMP_WAIT_POLICY is passive.
TEST_F(TrainImage, AloneItHasTheSettingsOfTuttiRun) {
  const auto alone =
      tutti::testing::run(command(0, {"--max-steps", "1"}),
                          {{"OMP_DISPLAY_ENV", "verbose"}, {"OMP_WAIT_POLICY", ""}, {"OMP_NUM_THREADS", "2"}});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.err, AllOf(HasSubstr("GOMP_SPINCOUNT = '0'"), HasSubstr("OMP_NUM_THREADS = '2'")));
}

TEST_F(TrainImage, APathThatCannotBeWrittenIsRejectedAtTheStart) {
  auto ended = train(0, {"--save", "/no/such/folder/weights.safetensors"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the folder /no/such/folder: No such file or directory"), Not(HasSubstr("step "))));
  ended = train(0, {"--save", folder_.path()});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(folder_.path() + ": it is a folder, not a file"), Not(HasSubstr("step "))));
  ended = train(2, {"--save", folder_.path()});
  EXPECT_THAT(ended.err, AllOf(HasSubstr(folder_.path() + ": it is a folder, not a file"), Not(HasSubstr("PeerLost"))));
  std::filesystem::create_directories(folder_.path() + "/traces/trace-rank0001.json");
  ended = train(2, {"--trace", folder_.path() + "/traces"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("/trace-rank0001.json: it is a folder, not a file"), Not(HasSubstr("step 1"))));
  const std::string taken = folder_.path() + "/taken.json";
  std::filesystem::create_directory(taken);
  ended = train(0, {"--trace", taken});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(taken + ": it is a folder, not a file"), Not(HasSubstr("step "))));
}

}  // namespace
}  // namespace tutti
