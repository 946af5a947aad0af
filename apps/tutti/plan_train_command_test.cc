// `tutti plan train` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using testing::Ended;
using ::testing::HasSubstr;
using testing::run;

Ended plan_train(std::vector<std::string> words) {
  words.insert(words.begin(), {"plan", "train"});
  return run(words);
}

const std::vector<std::string> kGpt3 = {"--model", "gpt3-175b", "--cluster", "a100-sxm:128", "--global-batch", "1536"};

std::vector<std::string> gpt3(const std::vector<std::string>& more) {
  std::vector<std::string> words = kGpt3;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(PlanTrain, PrintsTheSameAnswerTwiceWithAllItsParts) {
  const Ended ended = plan_train(kGpt3);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(plan_train(kGpt3).out, ended.out);
  for (const char* part : {"128 nodes of 8 devices", "tokens/s, MFU", "the step", "compute", "memory in GiB",
                           "the best plans", "time for memory", "other ways", "pipeline (pp=", "not taken",
                           "none of them is faster", "--tensor-model-parallel-size"})
    EXPECT_THAT(ended.out, HasSubstr(part));
}

TEST(PlanTrain, JsonHasPlansThatUseAllDevices) {
  const Ended ended = plan_train(gpt3({"--json", "--best", "3", "--fix", "tp=8"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto line = nlohmann::json::parse(ended.out);
  EXPECT_EQ(line["devices"], 1024);
  EXPECT_EQ(line["proven"], true);
  ASSERT_EQ(line["best"].size(), 3u);
  EXPECT_THAT(std::string(line["best"][0]["plan"]), HasSubstr("tp=8,"));
  double sum = 0;
  for (const auto& [name, seconds] : line["best"][0]["parts_s"].items()) sum += double(seconds);
  EXPECT_NEAR(sum, double(line["best"][0]["step_s"]), 1e-9);
  EXPECT_LE(double(line["best"][0]["memory_bytes"]), double(line["limit_bytes"]));
}

// Masks cost time on cores, whether the sizes are given or published.
TEST(PlanTrain, DropoutIsTimedForPublishedModelsToo) {
  const auto seconds = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model", "gpt2", "--cluster", "cpu", "--global-batch", "16", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = plan_train(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? double(nlohmann::json::parse(ended.out)["best"][0]["step_s"]) : 0;
  };
  EXPECT_GT(seconds({"--attention-dropout", "0.1", "--hidden-dropout", "0.1"}), seconds({}));
}

TEST(PlanTrain, ComparesAPlanWithTheBestOne) {
  const Ended slow = plan_train(gpt3({"--why", "tp=16,sp,dp=64,mbs=1,zero=1,recompute=selective"}));
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_THAT(slow.out, HasSubstr("tensor sums: they cross nodes"));
  const Ended large = plan_train(gpt3({"--why", "dp=1024,mbs=1"}));
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, HasSubstr("takes samples in multiples of 1024"));
  const Ended unfit = plan_train(gpt3({"--why", "tp=8,dp=128,mbs=1"}));
  ASSERT_EQ(unfit.code, 0) << unfit.err;
  EXPECT_THAT(unfit.out, HasSubstr("it does not fit: needs "));
}

TEST(PlanTrain, DrawsThePlan) {
  const std::string path = ::testing::TempDir() + "plan_train.svg";
  const Ended ended = plan_train(gpt3({"--svg", path}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the picture is in "));
  std::ifstream file(path);
  const std::string svg(std::istreambuf_iterator<char>(file), {});
  for (const char* part :
       {"memory of a rank of each stage", "the ranks of one of", "the pipeline with", "</svg>\n</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
  std::remove(path.c_str());
  const Ended unwritable = plan_train(gpt3({"--svg", "/nowhere/plan.svg"}));
  EXPECT_EQ(unwritable.code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("/nowhere/plan.svg"));
}

TEST(PlanTrain, GoalsChangeTheAnswer) {
  const auto best_of = [](const std::vector<std::string>& more) {
    const Ended ended = plan_train(gpt3(more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  };
  const auto fast = best_of({"--json"}), small = best_of({"--json", "--goal", "memory"});
  EXPECT_LT(double(fast["best"][0]["step_s"]), double(small["best"][0]["step_s"]));
  EXPECT_GT(double(fast["best"][0]["memory_bytes"]), double(small["best"][0]["memory_bytes"]));
  const auto few = best_of({"--json", "--goal", "devices", "--step-time", "100s"});
  EXPECT_LT(int(few["devices"]), 1024);
  EXPECT_LE(double(few["best"][0]["step_s"]), 100);
  const Ended never = plan_train(gpt3({"--goal", "devices", "--step-time", "1s"}));
  EXPECT_EQ(never.code, 1);
  EXPECT_THAT(never.err, HasSubstr("the shortest is"));
}

TEST(PlanTrain, ChecksAndCalibratesWithMeasuredRuns) {
  const std::string folder = ::testing::TempDir();
  const std::string runs = folder + "plan_train_runs.csv", fitted = folder + "plan_train_fitted.toml";
  std::ofstream(runs) << "tp,pp,dp,mbs,step_s\n1,1,8,4,1.2\n2,1,4,4,1.5\n1,2,4,4,1.3\n2,2,2,4,1.6\n4,1,2,8,1.9\n";
  const std::vector<std::string> model = {"--model", "gpt2-medium", "--cluster", "v100-p3", "--global-batch", "64"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = model;
    words.insert(words.end(), more.begin(), more.end());
    return plan_train(words);
  };
  const Ended before = with({"--check", runs, "--json"});
  ASSERT_EQ(before.code, 0) << before.err;
  const Ended ended = with({"--calibrate", runs, "--output", fitted});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("share of the peak"));
  const Ended after =
      plan_train({"--model", "gpt2-medium", "--cluster", fitted, "--global-batch", "64", "--check", runs, "--json"});
  ASSERT_EQ(after.code, 0) << after.err;
  const auto one = nlohmann::json::parse(before.out), other = nlohmann::json::parse(after.out);
  EXPECT_EQ(one["runs"], 5);
  EXPECT_LT(double(other["mean_error"]), 0.5 * double(one["mean_error"]));
  std::ofstream(runs) << "tp,pp,dp,mbs,step_s\n1,1,8,4,failed\n";
  std::remove(fitted.c_str());
  const Ended nothing = with({"--calibrate", runs, "--output", fitted});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no run ended, so there is nothing to fit"));
  EXPECT_FALSE(std::ifstream(fitted).good());
  EXPECT_THAT(with({"--check", runs}).out, HasSubstr("no run ended, so there are no times to compare"));
  std::remove(runs.c_str());
}

TEST(PlanTrain, UtilizationIsThatOfDevicesWithTheirSpeed) {
  const std::string path = ::testing::TempDir() + "plan_train_speed.toml";
  const auto utilization = [&](const char* speed) {
    std::ofstream(path) << "[[nodes]]\nmemory_gib = 80\nspeed = " << speed
                        << "\n[device]\npeak_tflops = 100\nstream_gb_s = 1000\n";
    const Ended ended = plan_train({"--model", "gpt2", "--cluster", path, "--global-batch", "8", "--json"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return double(nlohmann::json::parse(ended.out)["best"][0]["mfu"]);
  };
  EXPECT_NEAR(utilization("2"), utilization("1"), 1e-9);
  std::remove(path.c_str());
}

TEST(PlanTrain, ReportsWhatIsMissingWhereNothingFits) {
  const Ended ended = plan_train({"--model", "llama3-405b", "--cluster", "v100-p3", "--global-batch", "8"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("no plan fits: the smallest one, "));
  EXPECT_THAT(ended.err, HasSubstr(" nodes, or devices with more memory"));
  EXPECT_THAT(ended.out, HasSubstr("needs "));
}

const std::vector<std::string> kDlrm = {"--model",
                                        "dlrm",
                                        "--arch-embedding-size",
                                        "1000000-1000000-5000-5000-200-200",
                                        "--cluster",
                                        "cpu:2",
                                        "--arch-sparse-feature-size",
                                        "64",
                                        "--arch-mlp-bot",
                                        "13-512-64",
                                        "--arch-mlp-top",
                                        "512-256-1",
                                        "--global-batch",
                                        "4096"};

Ended dlrm(const std::vector<std::string>& more) {
  std::vector<std::string> words = kDlrm;
  words.insert(words.end(), more.begin(), more.end());
  return plan_train(words);
}

TEST(PlanTrain, PlacesTheTablesOfADlrm) {
  const Ended ended = dlrm({});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(dlrm({}).out, ended.out);
  for (const char* part :
       {"6 tables of 128.7 million numbers", "2 nodes of 8 devices", "samples/s", "dense compute", "lookups",
        "rows out", "rows back", "averages", "optimizer", "memory in MiB", "placements", "table-wise: +", "tables\n",
        "tutti run --nnodes 2 -n 8 train_dlrm --arch-", "--mini-batch-size 4096"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  const auto line = nlohmann::json::parse(dlrm({"--json"}).out);
  EXPECT_EQ(line["devices"], 16);
  const auto& best = line["best"][0];
  EXPECT_EQ(best["memory"].size(), 16u);
  double sum = 0;
  for (const auto& [name, seconds] : best["parts_s"].items()) sum += double(seconds);
  EXPECT_NEAR(sum, double(best["step_s"]), 1e-9);
  EXPECT_THAT(dlrm({"--why", "replicated"}).out, HasSubstr("gradients of whole tables are summed"));
  EXPECT_THAT(dlrm({"--fix", "placement=row-wise"}).out, HasSubstr("\nrow-wise placement: "));
}

TEST(PlanTrain, ChecksAndCalibratesWithMeasuredPlacements) {
  const testing::Folder folder;
  const std::string runs = folder.path() + "/runs.csv", fitted = folder.path() + "/fitted.toml";
  std::ofstream(runs) << "placement,gbs,step_ms\nauto,4096,18\ncolumn-wise,4096,20\ntable-wise,4096,22\n";
  const auto error_of = [&](const Ended& ended) {
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? double(nlohmann::json::parse(ended.out)["mean_error"]) : 0;
  };
  const double before = error_of(dlrm({"--check", runs, "--json"}));
  const double after = error_of(dlrm({"--calibrate", runs, "--output", fitted, "--json"}));
  EXPECT_LT(after, 0.9 * before);
  EXPECT_NEAR(error_of(dlrm({"--cluster", fitted, "--check", runs, "--json"})), after, 1e-3);  // the file rounds
  const Ended wrong = dlrm({"--check", runs, "--output", fitted});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("drop --output: only --calibrate writes"));
}

TEST(PlanTrain, WritesAPlacementForTrainDlrm) {
  const std::string path = ::testing::TempDir() + "plan_train_tables.json";
  std::remove(path.c_str());
  const Ended ended = dlrm({"--output", path});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("--plan " + path));
  std::ifstream file(path);
  const auto plan = nlohmann::json::parse(file);
  EXPECT_EQ(plan["ranks"], 16);
  EXPECT_EQ(plan["tables"].size(), 6u);
  std::remove(path.c_str());
}

TEST(PlanTrain, DividesTheSamplesOfAClassifier) {
  const Ended ended =
      plan_train({"--model", "mlp", "--optimizer", "adam", "--cluster", "cpu", "--global-batch", "1024"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* part : {"mlp (20.0 million parameters)", "a rank takes 128 samples a step in ", "memory of a rank",
                           "sharded optimizer (", "train_image --model mlp --batch-size ", "--optimizer adam"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  const Ended other = plan_train({"--model", "mlp:784-64-10", "--cluster", "a100-sxm", "--global-batch", "1024"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("tutti::parallelize()"));
}

TEST(PlanTrain, MistakesAreSentences) {
  const auto says = [](const std::vector<std::string>& words, const char* sentence) {
    const Ended ended = plan_train(words);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
  };
  says({"--model", "gpt3-175b", "--global-batch", "8"}, "no --cluster given");
  says({"--model", "gpt3-175b", "--cluster", "a100-sxm"}, "no --global-batch given");
  says({"--model", "gpt3", "--cluster", "a100-sxm", "--global-batch", "8"}, "there is no --model 'gpt3'");
  says({"--cluster", "a100-sxm", "--global-batch", "8"}, "--num-layers is missing");
  says(gpt3({"--num-layers", "3"}), "--model gpt3-175b has its own sizes, and --num-layers is given");
  says(gpt3({"--fix", "tpp=2"}), "did you mean tp?");
  says(gpt3({"--memory", "much"}), "--memory needs a size such as 60G, not 'much'");
  says(gpt3({"--runtime", "megatro"}), "did you mean megatron?");
  says(gpt3({"--goal", "devices"}), "--step-time 2s");
  says(gpt3({"--fix", "dp=7"}), "no plan divides the model");
  says(gpt3({"--check", "/nowhere/runs.csv"}), "/nowhere/runs.csv");
  says(gpt3({"--arch-mlp-bot", "3-4"}), "--arch-mlp-bot is for dlrm, and --model is gpt3-175b");
  says(gpt3({"--optimizer", "adam"}), "--optimizer is for mlp, cnn and dlrm");
  says({"--model", "dlm", "--cluster", "cpu", "--global-batch", "8"}, "did you mean dlrm?");
  says({"--model", "mlp", "--cluster", "cpu", "--global-batch", "100"}, "cannot be divided among 8 ranks");
  says({"--model", "mlp", "--cluster", "cpu", "--global-batch", "64", "--fix", "tp=2"}, "so a plan has no tp");
  says({"--model", "cnn", "--cluster", "cpu", "--global-batch", "64", "--svg", "a.svg"}, "--svg is for transformers");
  says({"--model", "mlp", "--cluster", "cpu", "--global-batch", "64", "--check", "runs.csv"},
       "--check is for transformers and dlrm, and --model is mlp");
  says({"--model", "dlrm", "--cluster", "cpu", "--global-batch", "64", "--why", "tablewise"},
       "did you mean table-wise?");
}

}  // namespace
}  // namespace tutti
