// pretrain_gpt as a program: every grid prints the losses and norms of one process, in every type that it computes in,
// and mistakes get sentences.
#include "tests/train/pretrain_gpt.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/train/saved_values.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using test::curve;
using test::fields;
using test::kModel;
using test::OnGrid;
using test::pretrain;
using test::pretrain_on_two_hosts;
using test::PretrainGpt;
using test::with;
using test::Words;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(PretrainGpt, PrintsTheLinesOfMegatron) {
  const auto ended = pretrain(0, with(kModel, {"--train-iters", "2", "--log-throughput", "--log-params-norm",
                                               "--log-num-zeros-in-grad", "--timing-log-level", "2"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* text :
       {"] iteration        1/       2 | consumed samples:            8 | elapsed time per iteration (ms): ",
        " | throughput per GPU (TFLOP/s/GPU): ",
        " | learning rate: 1.000000E-02 | global batch size:     8 | lm loss: ", " | loss scale: 1.0 | grad norm: ",
        " | num zeros: ", " | params norm: ", " | number of skipped iterations:   0 | number of nan iterations:   0 |",
        " tokens per second: ", " model FLOP utilisation: ", "(min, max) time across ranks (ms):",
        "    forward-backward ....", "    optimizer ....", "    forward-compute ....",
        " validation loss at iteration 2 on validation set | lm loss value: ",
        " validation loss at iteration 2 on test set | lm loss value: ",
        "GPT: 4 layers of 32, 4 heads, 16 positions, vocabulary 99"})
    EXPECT_THAT(ended.out, HasSubstr(text));
}

TEST_F(PretrainGpt, TimersAreReportedOfEachRankOrOfTheSlowest) {
  const Words line = with(kModel, {"--train-iters", "1", "--timing-log-level", "1", "--timing-log-option"});
  const auto all = pretrain(2, with(line, {"all"}));
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("times across ranks (ms):\n"), Not(HasSubstr("(min, max)")),
                    ContainsRegex("  forward-backward:\n.1.      rank  0: [0-9.]+\n.1.      rank  1: [0-9.]+\n")));
  const auto most = pretrain(2, with(line, {"max"}));
  EXPECT_THAT(most.out, AllOf(HasSubstr("max time across ranks (ms):"), HasSubstr("    forward-backward ....")));
}

// The (step, value) pairs of a tag in the events file of a folder: the step is a varint of one byte, and the summary's
// length, the value's length and the tag lie between it and the value.
std::vector<std::pair<int, float>> scalars_of(const std::string& folder, const std::string& tag) {
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    bytes += read_file(entry.path().string(), 1 << 20).or_throw();
  const std::string key = "\n" + std::string(1, char(tag.size())) + tag + "\x15";
  std::vector<std::pair<int, float>> scalars;
  for (std::size_t at = bytes.find(key); at != std::string::npos; at = bytes.find(key, at + 1)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at + key.size(), sizeof value);
    scalars.emplace_back(bytes[at - 5], value);
  }
  return scalars;
}

TEST_F(PretrainGpt, WritesTheScalarsOfMegatron) {
  const auto ended = pretrain(
      2, with(kModel, {"--train-iters", "2", "--log-throughput", "--log-params-norm", "--log-num-zeros-in-grad",
                       "--log-interval", "2", "--tensorboard-dir", folder_, "--log-timers-to-tensorboard"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto steps = [&](const std::string& tag) {
    std::vector<int> steps;
    for (const auto& [step, value] : scalars_of(folder_, tag)) steps.push_back(step);
    return steps;
  };
  for (const std::string tag : {"learning-rate", "batch-size", "lm loss", "grad-norm", "num-zeros", "params-norm"}) {
    EXPECT_THAT(steps(tag), ElementsAre(1, 2)) << tag;
    EXPECT_THAT(steps(tag + " vs samples"), ElementsAre(8, 16)) << tag;
  }
  for (const char* tag : {"throughput", "iteration-time"}) EXPECT_THAT(steps(tag), ElementsAre(2)) << tag;
  EXPECT_THAT(steps("lm loss validation vs samples"), ElementsAre(16));
  const auto norms = scalars_of(folder_, "params-norm");
  ASSERT_EQ(norms.size(), 2u);
  EXPECT_NEAR(norms[1].second, *parse_double(fields(ended, "params norm").at(0)), 0.002) << "printed with 3 decimals";
}

TEST_F(PretrainGpt, Learns) {
  const auto ended = pretrain(0, with(kModel, {"--train-iters", "60", "--hidden-dropout", "0", "--attention-dropout",
                                               "0", "--lr-decay-style", "cosine", "--lr-warmup-iters", "5"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto losses = fields(ended, "lm loss");
  ASSERT_EQ(losses.size(), 60u);
  EXPECT_NEAR(*parse_double(losses.front()), 4.6, 0.1) << "log 99";
  EXPECT_LT(*parse_double(losses.back()), 1.5);
}

// gpt_matrix_test.cc shows that each of 278 grids trains as one process, to 1e-10. These runs show what needs the
// program: options select the grid and the schedule, and a sharded optimizer, overlap and loss scales keep the printed
// lines.
std::vector<OnGrid> grids() {
  const Words tp = {"--tensor-model-parallel-size", "2"}, pp = {"--pipeline-model-parallel-size", "2"},
              sp = {"--sequence-parallel"}, cp = {"--context-parallel-size", "2"},
              sharded = {"--use-distributed-optimizer"};
  const auto schedule = [&](const char* name) { return with(pp, {"--pipeline-schedule", name}); };
  return {
      {"data", 2, {}},
      {"data_overlapped", 2, {"--overlap-grad-reduce"}},
      {"data_sharded_optimizer", 2, sharded},
      {"sharded_among_one", 1, sharded},
      {"data_sharded_overlapped", 2, with(sharded, {"--overlap-grad-reduce"})},
      {"sharded_tensor", 4, with(sharded, with(tp, sp))},
      {"sharded_1f1b", 4, with(sharded, schedule("1f1b"))},
      {"sharded_interleaved", 4, with(with(sharded, pp), {"--num-virtual-stages-per-pipeline-rank", "2"})},
      {"sharded_zb_h1_tensor", 8, with(with(sharded, tp), schedule("zb-h1"))},
      {"sharded_zb_v", 4, with(sharded, schedule("zb-v"))},
      {"sharded_over_context_and_data", 8, with(with(sharded, cp), with(tp, sp))},
      {"interleaved_overlapped", 4, with(pp, {"--num-virtual-stages-per-pipeline-rank", "2", "--overlap-grad-reduce"})},
      {"tensor_overlapped", 4, with(with(tp, sp), {"--overlap-grad-reduce"})},
      {"fsdp", 2, {"--fsdp"}},
      {"fsdp_tensor_context", 4, with(with(tp, sp), with(cp, {"--use-torch-fsdp2"}))},
      {"loss_scale", 2, {"--loss-scale", "1024", "--pipeline-model-parallel-size", "2"}},
      {"sharded_loss_scale", 2, with(sharded, {"--loss-scale", "1024"})},
      {"recomputed", 1, {"--recompute-granularity", "full"}},
      {"fill_drain", 2, schedule("fill-drain")},
      {"data_and_pipeline", 4, schedule("zb-h1")},
      {"context_and_tensor", 4, with(with(tp, sp), cp)},
      {"automatic", 4, {"--parallel", "auto"}},
      {"automatic_tensor", 2, with(tp, {"--parallel", "auto"})},
  };
}

class EveryGrid : public PretrainGpt, public ::testing::WithParamInterface<OnGrid> {};

TEST_P(EveryGrid, TrainsAsOneProcess) {
  const Words steps = {"--train-iters", "3", "--log-params-norm"};
  const auto alone = pretrain(0, with(kModel, steps));
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto expected = curve(alone);
  ASSERT_EQ(expected.size(), 3u + 3u + 3u + 2u);
  const auto ended = pretrain(GetParam().ranks, with(with(kModel, steps), GetParam().options));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(curve(ended), expected);
}

INSTANTIATE_TEST_SUITE_P(PretrainGpt, EveryGrid, ::testing::ValuesIn(grids()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(PretrainGpt, OtherKindsOfModelsTrainTheSameOnGrids) {
  const Words llama = {"--swiglu",
                       "--normalization",
                       "RMSNorm",
                       "--position-embedding-type",
                       "rope",
                       "--disable-bias-linear",
                       "--untie-embeddings-and-output-weights",
                       "--group-query-attention",
                       "--num-query-groups",
                       "2",
                       "--train-iters",
                       "2"};
  const auto alone = pretrain(0, with(kModel, llama));
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Words grid = {
      "--tensor-model-parallel-size",        "2", "--sequence-parallel", "--pipeline-model-parallel-size", "2",
      "--decoder-first-pipeline-num-layers", "1"};
  const auto ended = pretrain(4, with(with(kModel, llama), grid));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(curve(ended), curve(alone));
  const auto context = pretrain(2, with(with(kModel, llama), {"--context-parallel-size", "2"}));
  EXPECT_EQ(curve(context), curve(alone)) << context.err;
}

// Each tensor rank sends half of an activation, or all of it (make_parallel() decides): the same numbers.
TEST_F(PretrainGpt, ActivationsInPartsOrWholeBetweenHostsTrainTheSame) {
  const Words line =
      with(kModel, {"--train-iters", "2", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"});
  const auto alone = pretrain(0, with(kModel, {"--train-iters", "2"}));
  for (const Words& more : {Words{}, Words{"--no-scatter-gather-tensors-in-pipeline"}}) {
    const auto ended = pretrain_on_two_hosts(4, with(line, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(curve(ended), curve(alone));
  }
}

// Of a vocabulary of 13 words every made-up sample of 16 has an end of a document.
TEST_F(PretrainGpt, DocumentsThatDoNotSeeEachOtherTrainTheSameOnGrids) {
  Words line = with(kModel, {"--train-iters", "2", "--vocab-size", "12"});
  const auto plain = curve(pretrain(0, line));
  const Words both = {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"},
              rope = {"--position-embedding-type", "rope"};
  for (const Words& kind : {both, with(both, rope)}) {
    const auto alone = pretrain(0, with(line, kind));
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_NE(curve(alone), plain);
    // Of learned positions it matters where they begin; rotary ones are seen as differences alone.
    const auto going_on = curve(pretrain(0, with(line, {kind.begin() + 1, kind.end()})));
    EXPECT_EQ(curve(alone) == going_on, kind.size() > both.size());
    const Words tp = {"--tensor-model-parallel-size", "2", "--sequence-parallel"},
                pp = {"--pipeline-model-parallel-size", "4"}, cp = {"--context-parallel-size", "2"};
    for (const Words& grid : {with(tp, cp), pp}) {
      const auto ended = pretrain(4, with(with(line, kind), grid));
      EXPECT_EQ(curve(ended), curve(alone)) << ended.err;
    }
  }
}

// Products in f16, with a loss scale that falls from where it overflows: a CPU can do them from LibTorch 2.4 on.
TEST_F(PretrainGpt, LearnsInF16OrSaysWhyNot) {
  Words line = kModel;
  std::erase(line, "--fp64");
  line = with(line, {"--train-iters", "24", "--hysteresis", "1", "--loss-scale-window", "4"});
  const Words f16 = with(line, {"--fp16"});
  const auto alone = pretrain(1, f16);
  if (alone.code != 0) {
    EXPECT_EQ(alone.code, 2);
    EXPECT_THAT(alone.err, AllOf(HasSubstr("pretrain_gpt: --fp16: LibTorch "), HasSubstr(" cannot multiply f16"),
                                 HasSubstr("hint: --bf16 has the range of f32")));
    return;
  }
  const auto scales = fields(alone, "loss scale");
  ASSERT_EQ(scales.size(), 24u);
  EXPECT_EQ(scales[0], "4294967296.0");
  EXPECT_LT(*parse_double(scales[23]), 4294967296.0);
  EXPECT_THAT(fields(alone, "number of skipped iterations"), Contains("  1"));
  Words half = line;
  half.erase(std::find(half.begin(), half.end(), "--hysteresis"), half.end());
  const auto exact = fields(pretrain(1, half), "lm loss");
  const auto losses = fields(alone, "lm loss");
  ASSERT_GT(losses.size(), 4u);
  EXPECT_NEAR(*parse_double(losses[0]), *parse_double(exact[0]), 0.02);
  for (const Words& grid : {Words{"--pipeline-model-parallel-size", "2"},
                            Words{"--tensor-model-parallel-size", "2", "--use-distributed-optimizer"}}) {
    const auto ended = pretrain(4, with(f16, grid));
    ASSERT_EQ(ended.code, 0) << ended.err;
    // Two data parallel ranks have half as many microbatches each, whose losses are scaled by twice as much: where
    // the largest gradient is near the end of f16's range, they halve once more, and may double a window later.
    const auto theirs = fields(ended, "loss scale");
    ASSERT_EQ(theirs.size(), scales.size());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const double ratio = *parse_double(theirs[i]) / *parse_double(scales[i]);
      EXPECT_TRUE(ratio == 1 || ratio == 0.5 || ratio == 0.25)
          << "step " << i + 1 << ": " << theirs[i] << " to " << scales[i];
    }
    EXPECT_NEAR(*parse_double(fields(ended, "lm loss").back()), *parse_double(losses.back()), 0.05);
  }
}

TEST_F(PretrainGpt, AFixedScaleThatOverflowsEndsTheRun) {
  Words line = kModel;
  std::erase(line, "--fp64");
  for (const Words& more : {Words{"--use-distributed-optimizer"}, Words{"--pipeline-model-parallel-size", "1"}}) {
    const auto ended = pretrain(2, with(with(line, more), {"--train-iters", "2", "--tensor-model-parallel-size", "2",
                                                           "--loss-scale", "3e38", "--init-method-std", "100"}));
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("has a NaN or an infinity"), HasSubstr("a smaller loss scale")));
  }
}

TEST_F(PretrainGpt, BF16StaysNearF32) {
  Words f32 = kModel;
  std::erase(f32, "--fp64");
  const Words steps = {"--train-iters", "3", "--tensor-model-parallel-size", "2", "--sequence-parallel"};
  const auto exact = fields(pretrain(2, with(f32, steps)), "lm loss");
  const auto halved = pretrain(2, with(with(f32, steps), {"--bf16"}));
  ASSERT_EQ(halved.code, 0) << halved.err;
  const auto losses = fields(halved, "lm loss");
  ASSERT_EQ(losses.size(), exact.size());
  EXPECT_NE(losses, exact);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(*parse_double(losses[i]), *parse_double(exact[i]), 0.05);
}

// Large enough that the BLAS would take several threads. `tutti run` gives a process alone all cores.
TEST_F(PretrainGpt, DeterministicHasItsBitsWithoutAVariable) {
  const Words line = split(
      "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
      "--vocab-size 98 --mock-data --micro-batch-size 4 --global-batch-size 16 --lr 1e-2 --eval-iters 0 "
      "--train-iters 2 --deterministic-mode",
      ' ');
  const auto weights = [&](int ranks, const std::string& threads) {
    const std::string save = folder_ + "/" + std::to_string(ranks) + "-" + threads;
    Words command;
    if (ranks > 0) command = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
    command.push_back(PRETRAIN_GPT);
    const auto ended = tutti::testing::run(with(with(command, line), {"--save", save}),
                                           {{"OMP_NUM_THREADS", threads}, {"OPENBLAS_NUM_THREADS", threads}});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return test::contents(save + "/step-0000002");
  };
  const auto alone = weights(0, "");
  for (const std::string threads : {"", "1", "3"}) EXPECT_TRUE(weights(1, threads) == alone) << threads << ", launched";
  EXPECT_TRUE(weights(0, "3") == alone);
  for (const int ranks : {2, 4}) EXPECT_TRUE(weights(ranks, "") == weights(ranks, "3")) << ranks << " processes";
}

// Found where files are opened, by one rank, not when a sample that has the token is read.
TEST_F(PretrainGpt, DataOfAnotherVocabularyIsRejectedAtTheStart) {
  const std::string text = folder_ + "/text.txt", prefix = folder_ + "/text";
  std::ofstream(text) << std::string(20000, 'a') << 'b';
  const auto made = tutti::testing::run({TUTTI_COMMAND, "data", "tokenize", text, "--output", prefix});
  ASSERT_EQ(made.code, 0) << made.err;
  Words line = kModel;
  std::erase(line, "--mock-data");
  const auto ended = pretrain(
      2, with(line, {"--train-iters", "1", "--data-path", prefix, "--split", "1", "--eval-iters", "0",
                     "--pipeline-model-parallel-size", "2", "--vocab-size", "97"}));  // a: 97, and NullTokenizer has 98
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("text.bin has the token 98 (in sequence 0), and the vocabulary has 98"));
  EXPECT_EQ(fields(ended, "lm loss"), Words());
}

TEST_F(PretrainGpt, AnOptionWithoutEffectIsReportedOnceAndTheRunContinues) {
  const auto ended = pretrain(2, with(kModel, {"--train-iters", "1", "--top-k", "5", "--sgd-momentum", "0.5"}));
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--top-k has no effect without --generate"),
                               HasSubstr("--sgd-momentum has no effect without --optimizer sgd")));
  EXPECT_EQ(ended.err.find("--top-k"), ended.err.rfind("--top-k")) << ended.err;
  EXPECT_THAT(pretrain(0, with(kModel, {"--train-iters", "1"})).err, Not(HasSubstr("has no effect")));
}

TEST_F(PretrainGpt, MistakesAreReportedBeforeAnythingIsMade) {
  const auto refused = [&](int ranks, const Words& more, const std::string& words) {
    const auto ended = pretrain(ranks, with(with(kModel, {"--train-iters", "1"}), more));
    EXPECT_EQ(ended.code, 2) << words << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_EQ(ended.out, "");
  };
  refused(0, {"--num-layer", "3"}, "unknown option --num-layer\nhint: did you mean --num-layers?");
  refused(0, {"--seq-length", "64"}, "a sequence of 64 tokens (--seq-length) is longer than the 16 positions");
  refused(0, {"--qk-layernorm"}, "--qk-layernorm is not supported: queries and keys are not normalised");
  refused(3, {"--tensor-model-parallel-size", "2"}, "3 ranks cannot be laid out");
  refused(2, {"--pipeline-model-parallel-size", "2", "--num-layers", "1"}, "1 layers cannot be divided over 2 stages");
  refused(0, {"--load", folder_, "--exit-on-missing-checkpoint"}, folder_);
}

TEST_F(PretrainGpt, AFolderThatCannotBeMadeIsReportedWithItsOption) {
  const auto refused = [&](int ranks, const Words& more, const std::string& words) {
    const auto ended = pretrain(ranks, with(with(kModel, {"--train-iters", "1"}), more));
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_EQ(fields(ended, "lm loss"), Words());
  };
  for (const std::string option : {"--save-dir", "--trace", "--tensorboard-dir"})
    refused(option == "--save-dir" ? 2 : 0, {option, "/proc/none"},
            option +
                ": cannot make the folder /proc/none: No such file or directory (hint: give a folder that is there, "
                "or in a place where this user may make one)");
  refused(0, {"--save", "/proc"},
          "--save-dir: cannot make a file in the folder /proc: No such file or directory (hint: give a folder that is "
          "there, and that this user may write to)");
  refused(0, {"--load", "/proc/none", "--exit-on-missing-checkpoint"}, "--load: cannot read the folder /proc/none: No");
}

// By the number of ranks in the environment, before any rank connects to another; one rank reports them.
TEST_F(PretrainGpt, MistakesAreFoundBeforeRanksConnect) {
  const auto nobody_there = [&](const Words& more, const char* rank) {
    return testing::run(with(with({PRETRAIN_GPT}, with(kModel, {"--train-iters", "1"})), more),
                        {{"RANK", rank}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  };
  const std::vector<std::pair<Words, std::string>> mistakes = {
      {{"--tensor-model-parallel-size", "3"}, "4 ranks cannot be laid out as tensor 3"},
      {{"--tensor-model-parallel-size", "4", "--num-attention-heads", "2"},
       "2 attention heads (--num-attention-heads) cannot be divided over --tensor-model-parallel-size 4\nhint: "
       "--tensor-model-parallel-size 1 or 2, or --num-attention-heads 4 would do"},
      {{"--pipeline-model-parallel-size", "4", "--num-layers", "2"}, "2 layers cannot be divided over 4 stages"},
      {{"--seq-length", "17"}, "a sequence of 17 tokens (--seq-length) is longer than the 16 positions"},
      {{"--vocab-size", "0"}, "--vocab-size needs a number from 1"},
      {{"--global-batch-size", "9"}, "9"},
      {{"--parallel", "auto", "--tensor-model-parallel-size", "3"}, "no plan divides --global-batch-size 8"},
      {{"--parallel", "auto", "--cluster", "h100-sxm"}, "--cluster h100-sxm has 8 devices, and 4 ranks train"},
      {{"--num-layer", "3"}, "unknown option --num-layer\nhint: did you mean --num-layers?"},
      {{"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2",
        "--microbatch-group-size-per-virtual-pipeline-stage", "1"},
       "groups of 1 microbatches"},
  };
  for (const auto& [more, words] : mistakes) {
    const auto first = nobody_there(more, "0");
    EXPECT_EQ(first.code, 2) << words;
    EXPECT_THAT(first.err, AllOf(StartsWith("pretrain_gpt: "), HasSubstr(words)));
    const auto second = nobody_there(more, "1");
    EXPECT_EQ(second.code, 2);
    EXPECT_THAT(second.err, AllOf(HasSubstr("rank 1 exits before the ranks connect"), Not(HasSubstr(words))));
  }
  const auto together = pretrain(4, with(kModel, {"--train-iters", "1", "--tensor-model-parallel-size", "3"}));
  EXPECT_EQ(together.code, 2);
  int told = 0;  // before the report, which repeats a rank's last lines
  for (const auto& line : split(together.err.substr(0, together.err.find("the job failed")), '\n'))
    told += line.find("] pretrain_gpt: grid: 4 ranks") == 3 - 1;
  EXPECT_LE(told, 1) << "by rank 0, unless another left first and the job ended before it could\n" << together.err;
  EXPECT_THAT(together.err, HasSubstr("grid: 4 ranks cannot be laid out as tensor 3"));
}

TEST_F(PretrainGpt, TakesTheLocalRankOfTheLauncher) {
  const Words line = {TUTTI_COMMAND, "run", "-n", "2", "--pass-local-rank", "--", PRETRAIN_GPT, "--train-iters", "1"};
  const auto ended = tutti::testing::run(with(line, kModel), test::kOneThread);
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(PretrainGpt, RanksWithDifferentOptionsAreReported) {
  Words line = {
      TUTTI_COMMAND, "run",       "-n", "2",
      "--",          "sh",        "-c", "if [ $RANK = 0 ]; then n=4; else n=8; fi; exec \"$@\" --train-iters $n",
      "sh",          PRETRAIN_GPT};
  const auto ended = tutti::testing::run(with(line, kModel), {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--train-iters is 4 on rank 0, but 8 on rank 1"));
}

}  // namespace
}  // namespace tutti
