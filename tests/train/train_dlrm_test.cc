// train_dlrm as a program: what it prints, alone and on ranks, and what it says to mistakes. The losses are those of
// dlrm_s_pytorch.py with the same options and seed.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/launch/running.h"
#include "tests/train/processes.h"
#include "tests/train/saved_values.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using test::contents;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using tutti::testing::Ended;

// On `ranks` ranks; 0: the program alone.
Ended train(int ranks, std::vector<std::string> arguments) {
  std::vector<std::string> line;
  if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  line.push_back(TRAIN_DLRM);
  line.insert(line.end(), arguments.begin(), arguments.end());
  return tutti::testing::run(line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
}

// The losses of the lines "Finished ... loss X", of one rank.
std::vector<std::string> losses_of(const Ended& ended) {
  std::vector<std::string> losses;
  for (const auto& line : split(ended.out, '\n')) {
    const auto at = line.find(", loss ");
    if (at != std::string::npos) losses.push_back(line.substr(at + 7));
  }
  return losses;
}

using Texts = std::vector<std::string>;

TEST(TrainDlrm, PrintsWhatTheReferencePrints) {
  const auto ended = train(0, {"--mini-batch-size=2", "--data-size=6"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "Using CPU...\n"
            "time/loss/accuracy (if enabled):\n"
            "Finished training it 1/3 of epoch 0, -1.00 ms/it, loss 0.025266\n"
            "Finished training it 2/3 of epoch 0, -1.00 ms/it, loss 0.180494\n"
            "Finished training it 3/3 of epoch 0, -1.00 ms/it, loss 0.083240\n");
}

TEST(TrainDlrm, ReproducesTheGoldenLosses) {
  EXPECT_EQ(losses_of(train(0, {})), Texts{"0.083850"});
  EXPECT_EQ(losses_of(train(0, {"--mini-batch-size=2", "--data-size=6", "--nepochs=2"})),
            (Texts{"0.025266", "0.180494", "0.083240", "0.025051", "0.179862", "0.082924"}));
  EXPECT_EQ(losses_of(train(0, {"--mini-batch-size=2", "--data-size=6", "--learning-rate=0.1"})),
            (Texts{"0.025266", "0.179439", "0.081175"}));
  EXPECT_EQ(losses_of(train(0, {"--mini-batch-size=2", "--data-size=5", "--nepochs=3", "--learning-rate=0.1"})),
            (Texts{"0.025266", "0.179439", "0.172185", "0.022574", "0.171421", "0.164232", "0.019973", "0.163296",
                   "0.156195"}));
}

TEST(TrainDlrm, RanksPrintTheLossesOfOneProcess) {
  const auto ended =
      train(3, {"--mini-batch-size=2", "--data-size=5", "--nepochs=3", "--learning-rate=0.1", "--num-workers=2"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(losses_of(ended), (Texts{"0.025266", "0.179439", "0.172185", "0.022574", "0.171421", "0.164232", "0.019973",
                                     "0.163296", "0.156195"}))
      << "also with fewer samples than ranks";
  for (const char* line : {"world size: 3, current rank: 0, local rank: 0",
                           "world size: 3, current rank: 2, local rank: 2", "Running on 3 ranks using tutti backend"})
    EXPECT_THAT(ended.out, HasSubstr(line));
}

TEST(TrainDlrm, DebugModeShowsWeightsBeforeAndAfter) {
  const auto ended = train(2, {"--mini-batch-size=2", "--data-size=6", "--debug-mode"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* text :
       {"mlp top arch 3 layers, with input to output dimensions:", "[8 4 2 1]", "[0.71947 0.42311 0.98076 0.68483]]",
        "initial parameters (weights and bias):", "(1): EmbeddingBag(3, 2, mode=sum)",
        "updated parameters (weights and bias):", "[[ 0.19644 -0.21391]", "[ 0.48072  0.1848 ]]",
        "[[-0.88581 -0.59754]]", "[-1.21054]"})
    EXPECT_THAT(ended.out, HasSubstr(text));
}

TEST(TrainDlrm, MistakesGetASentenceAndExitCode2) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& words) {
    const auto ended = train(0, arguments);
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, AllOf(HasSubstr(words), Not(HasSubstr("Exception")))) << ended.err;
    EXPECT_EQ(ended.out, "");
  };
  refused({"--arch-mlp-bott", "4-2"}, "unknown option --arch-mlp-bott\nhint: did you mean --arch-mlp-bot?");
  refused({"--arch-mlp-bot", "4-x-2"}, "number 2 of '4-x-2' is 'x'");
  refused({"--arch-mlp-bot", "4-3"}, "the bottom MLP ends in 3 (--arch-mlp-bot 4-3)");
  refused({"--optimizer", "adam"}, "there is no --optimizer 'adam'");
  refused({"--round-targets", "maybe"}, "--round-targets needs true or false (or 1 or 0), not 'maybe'");
  refused({"--loss-threshold", "2"}, "--loss-threshold needs a number from 0 to 1, not '2'");
  refused({"--quantize-emb-with-bit", "5"}, "there is no --quantize-emb-with-bit '5'");
  refused({"--activation-function", "gelu"},
          "--activation-function gelu is not supported: hidden layers are ReLU and the last one is a sigmoid");
  refused({"--save-onnx"}, "--save-onnx is not supported: there is no ONNX export");
  refused({"--use-gpu", "--device", "cpu"}, "--use-gpu and --device cpu were both given");
  refused({"--use-gpu", "--device", "auto"}, "--use-gpu and --device auto were both given");
  refused({"--num-batches", "1099511627776", "--mini-batch-size", "1099511627776"},
          "--num-batches 1099511627776 of 1099511627776 samples are more than can be counted");
  refused({"--dist-backend", "nccl", "--save-onnx"}, "2 options are not supported:\n  --save-onnx: ");
  refused({"--dist-backend", "nccl"}, "--dist-backend nccl is not supported: NCCL is for GPUs");
  refused({"--parallel", "auto", "--use-gpu"}, "--parallel auto and --use-gpu were both given");
  refused({"--parallel", "auto", "--table-folder", "x"}, "--parallel auto and --table-folder were both given");
  refused({"--cluster", "cpu"}, "--cluster is for --parallel auto");
  refused({"--parallel", "auto", "--cluster", "cpu"}, "--cluster cpu has 8 devices, and 1 rank trains");
}

TEST(TrainDlrm, AnExchangeThatSendsNothingIsWarnedOf) {
  const auto train_with = [](const Texts& more) {
    Texts line = {TUTTI_COMMAND, "run", "-n", "2", "--", TRAIN_DLRM, "--mini-batch-size=2", "--data-size=6"};
    line.insert(line.end(), more.begin(), more.end());
    return tutti::testing::run(
        line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"DLRM_ALLTOALL_IMPL", "scatter"}});
  };
  const auto shared = train_with({}), sent = train_with({"--no-shared-tables"});
  EXPECT_EQ(shared.code, 0) << shared.err;
  EXPECT_THAT(shared.err,
              HasSubstr("DLRM_ALLTOALL_IMPL=scatter has no effect: all ranks share the memory of one host"));
  EXPECT_THAT(shared.out, Not(HasSubstr("DLRM_ALLTOALL_IMPL")));
  EXPECT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.err, Not(HasSubstr("DLRM_ALLTOALL_IMPL")));
  EXPECT_THAT(sent.out, HasSubstr("Using DLRM_ALLTOALL_IMPL=scatter\n"));
  EXPECT_EQ(losses_of(shared), losses_of(sent));
}

TEST(TrainDlrm, RanksWithDifferentOptionsAreReported) {
  const auto ended = tutti::testing::run(
      {TUTTI_COMMAND, "run", "-n", "3", "--", "sh", "-c",
       "if [ $RANK = 0 ]; then lr=0.05; else lr=0.1; fi; exec \"$@\" --learning-rate $lr", "sh", TRAIN_DLRM},
      {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--learning-rate is 0.05 on rank 0, but 0.1 on ranks 1, 2"));
}

TEST(TrainDlrm, ALossThatIsNotANumberIsReportedWithBatchAndRank) {
  const auto ended = train(2, {"--mini-batch-size=4", "--data-size=40", "--learning-rate=1e30",
                               "--arch-interaction-op=cat", "--loss-function=bce", "--optimizer=sgd"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the loss of batch "), HasSubstr(" of epoch 0 is "), HasSubstr("of rank ")));
}

const Texts kSmall = {"--arch-embedding-size=40-30-20", "--mini-batch-size=8", "--data-size=96",
                      "--round-targets=true",           "--loss-function=bce", "--learning-rate=0.1",
                      "--optimizer=rwsadagrad",         "--dtype=float64",     "--nepochs=3"};

Texts operator+(Texts one, const Texts& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

TEST(TrainDlrm, ResumesWhereItStoppedOnAnotherNumberOfRanks) {
  const testing::Folder folder;
  const auto model = folder.path() + "/model";
  const auto straight = losses_of(train(0, kSmall));
  ASSERT_EQ(straight.size(), 36u);
  // The threshold is reached with the first test, in the midst of an epoch.
  const auto stopped = train(
      2, kSmall + Texts{"--test-freq=5", "--mlperf-logging", "--mlperf-acc-threshold=0.0001", "--save-model=" + model});
  ASSERT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_THAT(stopped.out, AllOf(HasSubstr("Testing at - 5/12 of epoch 0,"), HasSubstr("auc 0."),
                                 HasSubstr("Saving model to " + model),
                                 HasSubstr("MLPerf testing accuracy threshold 0.0001 reached, stop training")));
  EXPECT_EQ(losses_of(stopped), Texts(straight.begin(), straight.begin() + 5));
  const auto resumed = train(3, kSmall + Texts{"--load-model=" + model, "--save-model=" + model});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("Saved at: epoch = 0/3, batch = 5/12, ntbatch = 12"));
  Texts rest(straight.begin() + 5, straight.end());
  auto found = losses_of(resumed);
  EXPECT_EQ(Texts(found.end() - long(rest.size()), found.end()), rest);

  const auto other = train(0, kSmall + Texts{"--load-model=" + model, "--nepochs=4", "--arch-mlp-top=5-1"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("top_l.0.weight"));
  const auto again = train(0, kSmall + Texts{"--load-model=" + model, "--nepochs=4"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("Saved at: epoch = 3/3, batch = 0/12, ntbatch = 12"));
  EXPECT_THAT(again.out, AllOf(HasSubstr("training it 1/12 of epoch 3"), Not(HasSubstr("of epoch 2,"))));
}

// The reference counts from the batch before, reading included; nothing at the head of an epoch and after a test.
TEST(TrainDlrm, WithMlperfLoggingAnIterationGoesFromBatchToBatch) {
  const auto ended =
      train(0, kSmall + Texts{"--nepochs=2", "--mlperf-logging", "--print-time", "--print-freq=1", "--test-freq=4"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  Texts empty;
  for (const auto& line : split(ended.out, '\n'))
    if (line.find(", 0.00 ms/it") != std::string::npos) empty.push_back(line.substr(0, line.find(", ")));
  Texts expected;
  for (const char* epoch : {"0", "1"})
    for (const char* batch : {"1", "5", "9"})
      expected.push_back("Finished training it " + std::string(batch) + "/12 of epoch " + epoch);
  EXPECT_EQ(empty, expected) << ended.out;
}

TEST(TrainDlrm, AModelOfAnotherOperationIsRefusedThoughItsWeightsFit) {
  const testing::Folder folder;
  const auto model = folder.path() + "/model";
  const auto refused = [&](const Texts& as, const std::string& words) {
    const auto ended = train(0, as + Texts{"--load-model=" + model, "--nepochs=2"});
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, HasSubstr(words));
  };
  // 3 products of pairs and 2 columns of dot, as many as 4 x 2 of cat.
  ASSERT_EQ(train(0, {"--save-model=" + model}).code, 0);
  refused({"--arch-interaction-op=cat"}, "it was saved with --arch-interaction-op dot, and cat is given");
  const auto done = train(0, {"--load-model=" + model});
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.err, ContainsRegex("nothing is left to train: .* has already reached --nepochs 1"));
  const Texts qr = {"--qr-flag", "--qr-threshold=2"};
  ASSERT_EQ(train(0, qr + Texts{"--save-model=" + model}).code, 0);
  refused(qr + Texts{"--qr-operation=add"}, "it was saved with --qr-operation mult, and add is given");
}

// 40 int32 a sample: label, 13 counts, 26 ids.
TEST(TrainDlrm, BatchesOfMlperfsBinaryComeInAnotherOrderInEachEpoch) {
  const testing::Folder folder;
  const auto path = folder.path() + "/train.bin";
  {
    std::ofstream file(path, std::ios::binary);
    for (std::int32_t sample = 0; sample < 24; ++sample) {
      for (std::int32_t column = 0; column < 40; ++column) {
        const std::int32_t value = column == 0 ? sample % 2 : sample * 7 % (column > 13 ? 3 : 50);
        file.write(reinterpret_cast<const char*>(&value), sizeof value);
      }
    }
  }
  std::string rows = "3";
  for (int table = 1; table < 26; ++table) rows += "-3";
  const Texts options = {"--data-generation=dataset",
                         "--mlperf-bin-loader",
                         "--processed-data-file=" + path,
                         "--arch-embedding-size=" + rows,
                         "--arch-mlp-bot=13-2",
                         "--mini-batch-size=2",
                         "--learning-rate=0",
                         "--nepochs=2"};
  // Nothing is learned, so an epoch has the same losses in the order of its batches.
  const auto epochs = [&](const Texts& more) {
    const auto ended = train(0, options + more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const auto losses = losses_of(ended);
    EXPECT_EQ(losses.size(), 24u);
    return std::pair(Texts(losses.begin(), losses.begin() + 12), Texts(losses.begin() + 12, losses.end()));
  };
  const auto plain = epochs({});
  EXPECT_EQ(plain.first, plain.second);
  const auto [first, second] = epochs({"--mlperf-bin-shuffle"});
  EXPECT_NE(first, second);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(plain.first));
  EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(plain.first));
  EXPECT_EQ(epochs({"--mlperf-bin-shuffle", "--num-workers=5"}), std::pair(first, second)) << "read ahead or not";
}

TEST(TrainDlrm, ResumesAfterAKill) {
  const testing::Folder folder;
  const auto model = folder.path() + "/model";
  const Texts options = kSmall + Texts{"--nepochs=400", "--print-freq=6"};
  testing::Running job(Texts{TUTTI_COMMAND, "run", "-n", "2", "--", TRAIN_DLRM} + options +
                           Texts{"--save-model=" + model, "--save-freq=7"},
                       {{"OMP_NUM_THREADS", "1"}});
  job.await_out("Saving model to ", 4);
  job.send(SIGKILL);
  job.wait();
  EXPECT_TRUE(job.nobody_left()) << job.census();
  const auto straight = losses_of(train(0, options));
  const auto resumed = train(0, options + Texts{"--load-model=" + model});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  auto found = losses_of(resumed);
  ASSERT_LT(found.size(), straight.size());
  EXPECT_EQ(found, Texts(straight.end() - long(found.size()), straight.end()));
}

// A rank is killed, the launcher starts both again, and they end where those that nobody disturbed end.
TEST(TrainDlrm, ARankThatIsKilledCostsNoBits) {
  const testing::Folder folder;
  const auto line = [&](const std::string& run, const Texts& of_run = {}) {
    return Texts{TUTTI_COMMAND, "run", "-n", "2"} + of_run + Texts{"--", TRAIN_DLRM} + kSmall +
           Texts{"--nepochs=100",       "--print-freq=12",
                 "--optimizer=adagrad", "--save-dir=" + folder.path() + "/" + run,
                 "--save-interval=50",  "--keep=2"};
  };
  const std::map<std::string, std::string> one_thread = {{"OMP_NUM_THREADS", "1"}};
  const auto straight = testing::run(line("straight"), one_thread);
  ASSERT_EQ(straight.code, 0) << straight.err;
  testing::Running job(line("killed", {"--max-restarts", "2"}), one_thread);
  job.await_out("Finished training it 12/12 of epoch 20");
  const auto ranks = test::processes_under(job.pid(), "train_dlrm");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const auto ended = job.wait();
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming after step "));
  EXPECT_EQ(contents(folder.path() + "/killed/step-0001200"), contents(folder.path() + "/straight/step-0001200"));
  EXPECT_EQ(losses_of(ended).back(), losses_of(straight).back());
}

// Told to stop, it saves and leaves with 75.
TEST(TrainDlrm, TheSameCommandResumes) {
  const testing::Folder folder;
  const auto run = folder.path() + "/run";
  const Texts options = kSmall + Texts{"--nepochs=200", "--print-freq=12", "--optimizer=adagrad"};
  const Texts line = Texts{TUTTI_COMMAND, "run", "-n", "2", "--", TRAIN_DLRM} + options +
                     Texts{"--save-dir=" + run, "--save-interval=50", "--keep=2", "--keep-every=500"};
  const std::map<std::string, std::string> one_thread = {{"OMP_NUM_THREADS", "1"}};
  const auto straight = losses_of(train(2, options));
  ASSERT_GT(straight.size(), 100u);
  const auto expect_end_of_straight = [&](const testing::Ended& ended) {
    const auto found = losses_of(ended);
    ASSERT_LT(found.size(), straight.size());
    ASSERT_GT(found.size(), 0u);
    EXPECT_EQ(found, Texts(straight.end() - long(found.size()), straight.end()));
  };
  testing::Running job(line, one_thread);
  job.await_out("Finished training it 12/12 of epoch 20");
  job.send(SIGTERM);
  const auto told = job.wait();
  ASSERT_EQ(told.code, 75) << told.err;
  const auto resumed = testing::run(line, one_thread);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step "));
  expect_end_of_straight(resumed);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run)) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"latest", "step-0000500", "step-0001000", "step-0001500", "step-0002000",
                                          "step-0002350", "step-0002400"}));
  // On one process, from a checkpoint in the middle, as a run of its own.
  const auto alone = train(0, options + Texts{"--resume=" + run + "/step-0001500"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  expect_end_of_straight(alone);
  // A place that is not told does not mean the beginning.
  test::rename_value(run + "/step-0002400", "batch", "bath");
  const auto nowhere = train(2, options + Texts{"--resume=" + run + "/step-0002400"});
  EXPECT_NE(nowhere.code, 0);
  EXPECT_THAT(nowhere.err, HasSubstr("its data.batch is not there, expected a whole number, 0 or more"));
  EXPECT_THAT(nowhere.err, HasSubstr("it has a data.bath; "));
  EXPECT_THAT(train(0, options + Texts{"--keep=2"}).err,
              HasSubstr("--keep is for --save-dir, which is not given\nhint: say where to save: --save-dir DIR"));
  EXPECT_THAT(train(0, options + Texts{"--resume=a", "--load-model=b"}).err,
              HasSubstr("--resume and --load-model were both given"));
  EXPECT_THAT(train(0, Texts{"--inference-only", "--load-model=b", "--save-dir=a"}).err,
              HasSubstr("--inference-only and --save-dir were both given"));
}

// A rank is killed, and all go on from the copy of tables and weights in memory.
TEST(TrainDlrm, AfterAKilledRankTheJobResumesFromMemory) {
  const Texts options = kSmall + Texts{"--nepochs=200", "--print-freq=12", "--optimizer=adagrad"};
  const auto straight = losses_of(train(2, options));
  ASSERT_GT(straight.size(), 100u);
  testing::Running job(Texts{TUTTI_COMMAND, "run", "-n", "2", "--max-restarts", "1", "--", TRAIN_DLRM} + options +
                           Texts{"--memory-copy-interval=10"},
                       {{"OMP_NUM_THREADS", "1"}});
  job.await_out("Finished training it 12/12 of epoch 20");
  const auto ranks = test::processes_under(job.pid(), "train_dlrm");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const auto ended = job.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("from the copy in memory of step "));
  const auto found = losses_of(ended);
  ASSERT_GE(found.size(), straight.size());
  EXPECT_EQ(found.back(), straight.back());
}

TEST(TrainDlrm, ASavedModelScoresRequests) {
  const testing::Folder folder;
  const auto model = folder.path() + "/model";
  ASSERT_EQ(train(2, {"--mini-batch-size=4", "--data-size=40", "--save-model=" + model}).code, 0);
  const auto inferred = [&](Texts more, int ranks = 2) {
    const auto ended = train(
        ranks, Texts{"--mini-batch-size=4", "--data-size=40", "--inference-only", "--load-model=" + model} + more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("Testing for inference only"),
                                 HasSubstr("Finished inference it 10/10 of epoch 0"), HasSubstr(" accuracy ")));
    return std::stod(losses_of(ended).back());
  };
  const double exact = inferred({});
  EXPECT_NEAR(inferred({"--quantize-mlp-with-bit=16"}), exact, 1e-3);
  EXPECT_NEAR(inferred({"--quantize-mlp-with-bit=8", "--quantize-emb-with-bit=4"}), exact, 2e-2);

  EXPECT_NEAR(inferred({"--quantize-mlp-with-bit=8", "--quantize-emb-with-bit=4"}, 0),
              inferred({"--quantize-mlp-with-bit=8", "--quantize-emb-with-bit=4"}), 2e-6)
      << "one process packs its tables, ranks round theirs";

  const auto scored = tutti::testing::run({DLRM_SCORE, model}, {}, "0.1 0.2 0.3 0.4 0,2 1 1\n0 0 0 0 - - -\n");
  EXPECT_EQ(scored.code, 0) << scored.err;
  const auto lines = split(std::string(trim(scored.out)), '\n');
  ASSERT_EQ(lines.size(), 2u);
  for (const auto& line : lines) {
    EXPECT_GT(std::stod(line), 0);
    EXPECT_LT(std::stod(line), 1);
  }
  const auto refused = tutti::testing::run({DLRM_SCORE, model}, {}, "0.1 0.2 0.3 0.4 0,9 1 1\n");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("feature 0: there is no row 9 among 4"));
}

TEST(TrainDlrm, LeavesProfilesGraphsAndEvents) {
  const testing::Folder folder;
  const auto ended = train(2, {"--mini-batch-size=2", "--data-size=6", "--enable-profiling", "--plot-compute-graph",
                               "--out-dir=" + folder.path() + "/out"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::string names, total, trace;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    const auto name = entry.path().filename().string();
    names += name + "\n";
    if (name.ends_with("_total.prof")) total = testing::read_file(entry.path());
    if (name.ends_with(".json")) trace = testing::read_file(entry.path());
  }
  EXPECT_THAT(names, AllOf(HasSubstr("dlrm_s_pytorch_graph.dot"), HasSubstr("dlrm_s_pytorch_graph.svg"),
                           HasSubstr("_shape.prof"), HasSubstr("events.out.tfevents.")));
  for (const char* label : {"DLRM forward", "DLRM backward", "DLRM embedding forward", "DLRM bottom nlp forward",
                            "DLRM top nlp forward", "DLRM interaction forward", "DLRM loss compute",
                            "DLRM alltoall_req_bwd_single", "DLRM alltoall_wait_bwd_single"})
    EXPECT_THAT(total, HasSubstr(label));
  EXPECT_TRUE(nlohmann::json::parse(trace).contains("traceEvents"));
}

TEST(TrainDlrm, LearnsPackedClicksAndSaysHowWell) {
  const testing::Folder folder;
  const auto clicks = folder.path() + "/clicks";
  const auto made = tutti::testing::run({TUTTI_COMMAND, "data", "clicks", "--output", clicks, "--samples", "60000",
                                         "--most-rows", "8", "--threads", "1"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Texts options = {"--data-generation=dataset", "--processed-data-file=" + clicks,
                         "--arch-mlp-bot=13-16-8",    "--arch-sparse-feature-size=8",
                         "--arch-mlp-top=16-1",       "--mini-batch-size=256",
                         "--loss-function=bce",       "--optimizer=rwsadagrad",
                         "--learning-rate=0.03"};
  const auto ended = train(2, options + Texts{"--print-freq=100", "--test-freq=1000", "--mlperf-logging", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto brace = ended.out.rfind('{');
  ASSERT_NE(brace, std::string::npos);
  const auto json = nlohmann::json::parse(ended.out.substr(brace));
  EXPECT_GT(double(json["test_auc"]), 0.68) << "0.64 without embeddings, 0.78 at most";
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("Testing at - 201/201 of epoch 0,"), HasSubstr("recall 0."), HasSubstr("best auc 0.")));

  const auto refused = [&](Texts more, const std::string& words) {
    const auto told = train(0, options + more);
    EXPECT_EQ(told.code, 2) << words;
    EXPECT_THAT(told.err, HasSubstr(words));
  };
  refused({"--arch-mlp-bot=14-16-8"}, "the bottom MLP begins with 14 dense features (--arch-mlp-bot 14-16-8), but " +
                                          clicks + " has 13 columns of them");
  refused({"--data-set=terabyte"}, "--data-set terabyte has 24 days, but " + clicks + " has 7");
  refused({"--processed-data-file=/nowhere"}, "/nowhere");
}

TEST(TrainDlrm, WhatIsNotThereIsAMistakeOfUse) {
  for (const char* option : {"--plan", "--load-model", "--table-folder"}) {
    const auto ended = train(0, {option, "/nowhere"});
    EXPECT_EQ(ended.code, 2) << option;
    EXPECT_THAT(ended.err, HasSubstr("/nowhere: No such file or directory"));
  }
}

TEST(TrainDlrm, AWireFormatForRowsThatNeverLeaveTheHostIsReportedAsUnused) {
  const char* const words = "--wire bf16 has no effect: all ranks share the memory of one host";
  EXPECT_THAT(train(2, {"--wire", "bf16"}).err, HasSubstr(words));
  EXPECT_THAT(train(2, {"--wire", "bf16", "--no-shared-tables"}).err, Not(HasSubstr(words)));
}

TEST(TrainDlrm, APathThatCannotBeWrittenIsRejectedAtTheStart) {
  const auto refused = [](const std::vector<std::string>& options, const std::string& words) {
    for (const int ranks : {0, 2}) {
      const auto ended = train(ranks, options);
      EXPECT_EQ(ended.code, 2) << words;
      EXPECT_THAT(ended.err, HasSubstr(words));
      EXPECT_THAT(ended.out, Not(HasSubstr("Finished")));
    }
  };
  const std::string none =
      ": cannot make the folder /proc/none: No such file or directory (hint: give a folder that is "
      "there, or in a place where this user may make one)";
  refused({"--save-model", "/proc/none"}, "--save-model" + none);
  refused({"--save-dir", "/proc/none"}, "--save-dir" + none);
  refused({"--out-dir", "/proc/none"}, "--out-dir" + none);
  refused(
      {"--table-folder", "/proc/none"},
      "--table-folder: cannot make a file in the folder /proc/none: No such file or directory (hint: give a folder");
  for (const char* words :
       {"--resume latest: ",
        "cannot read the folder latest: No such file or directory (hint: --resume "
        "takes auto (the newest in --save-dir, if there is one), never, or the path of a checkpoint)"})
    refused({"--resume", "latest"}, words);
}

TEST(TrainDlrm, PlansOfTablesAreReadFromAFile) {
  const testing::Folder folder;
  const auto plan = folder.path() + "/plan.json";
  const auto write = [&](const std::string& text) { std::ofstream(plan) << text; };
  write(R"({"ranks": 2, "tables": {"table_0": {"sharding": "row-wise", "ranks": [0, 1]},
            "table_1": {"sharding": "replicated"}, "table_2": {"sharding": "table-wise", "rank": 1}}})");
  auto ended = train(2, {"--mini-batch-size=2", "--data-size=6", "--plan", plan});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(losses_of(ended), (Texts{"0.025266", "0.180494", "0.083240"}));
  write(R"({"ranks": 2, "tables": {"table_0": {"sharding": "row-wise", "ranks": [0, 7]}}})");
  ended = train(2, {"--plan", plan});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(plan), HasSubstr("leaves out table table_1")));
}

TEST(TrainDlrm, AnAutomaticPlacementTrainsAsOneProcess) {
  const Texts losses{"0.025266", "0.180494", "0.083240"};
  const auto trains = [&](int ranks, Texts more, const std::string& line) {
    more.insert(more.begin(), {"--mini-batch-size=2", "--data-size=6", "--parallel=auto"});
    const auto ended = train(ranks, more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(losses_of(ended), losses) << line;
    EXPECT_THAT(ended.out, HasSubstr(line));
  };
  trains(2, {}, " placement: about ");
  trains(2, {"--placement=row-wise"}, "parallel auto: row-wise placement (given): about ");
  trains(2, {"--no-shared-tables"}, "parallel auto: instead of ");
  trains(8, {"--cluster=cpu"}, " placement: about ");
}

TEST(TrainDlrm, HelpIsForPeople) {
  const auto ended = train(0, {"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"), HasSubstr("Smaller tables:"),
                               HasSubstr("--mini-batch-size N"), Not(HasSubstr("{false}")), Not(HasSubstr("onnx"))));
}

}  // namespace
}  // namespace tutti
