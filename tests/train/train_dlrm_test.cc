// train_dlrm as a program: what it prints, alone and on ranks, and what it says to mistakes. The losses are those of
// dlrm_s_pytorch.py with the same options and seed.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::AllOf;
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
    const auto at = line.find(" loss ");
    if (at != std::string::npos) losses.push_back(line.substr(at + 6));
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
          "--activation-function gelu is not here: dlrm_s_pytorch.py never looks at it");
  refused({"--save-onnx"}, "--save-onnx is not here: there is no ONNX export");
  refused({"--use-gpu"}, "--use-gpu is not here");
  refused({"--dist-backend", "nccl"}, "--dist-backend nccl");
}

TEST(TrainDlrm, RanksWithDifferentOptionsAreTold) {
  const auto ended = tutti::testing::run(
      {TUTTI_COMMAND, "run", "-n", "3", "--", "sh", "-c",
       "if [ $RANK = 0 ]; then lr=0.05; else lr=0.1; fi; exec \"$@\" --learning-rate $lr", "sh", TRAIN_DLRM},
      {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--learning-rate is 0.05 on rank 0, but 0.1 on ranks 1, 2"));
}

TEST(TrainDlrm, ALossThatIsNotANumberIsToldWithBatchAndRank) {
  const auto ended = train(2, {"--mini-batch-size=4", "--data-size=40", "--learning-rate=1e30",
                               "--arch-interaction-op=cat", "--loss-function=bce", "--optimizer=sgd"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the loss of batch "), HasSubstr(" of epoch 0 is "), HasSubstr("of rank ")));
}

TEST(TrainDlrm, HelpIsForPeople) {
  const auto ended = train(0, {"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"), HasSubstr("Smaller tables:"),
                               HasSubstr("--mini-batch-size N"), Not(HasSubstr("{false}")), Not(HasSubstr("onnx"))));
}

}  // namespace
}  // namespace tutti
