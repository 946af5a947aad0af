// pretrain_gpt as a program that stops, is killed and goes on: on another grid, from another program's weights, and not
// with another model.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/train/pretrain_gpt.h"
#include "tests/train/processes.h"
#include "tests/train/saved_values.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/checkpoint/open.h"

namespace tutti {
namespace {

using test::fields;
using test::kModel;
using test::kOneThread;
using test::OnGrid;
using test::pretrain;
using test::PretrainGpt;
using test::with;
using test::Words;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PretrainGpt, ResumesOnAnotherGrid) {
  const std::string save = folder_ + "/run";
  const Words schedule = {"--train-iters", "4", "--lr-decay-style", "cosine", "--lr-warmup-iters", "1"};
  const auto whole = pretrain(0, with(kModel, schedule));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Words keep = with(with(kModel, schedule), {"--save", save, "--load", save});
  const auto first = pretrain(4, with(keep, {"--exit-interval", "2", "--tensor-model-parallel-size", "2",
                                             "--pipeline-model-parallel-size", "2"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(fields(first, "lm loss").size(), 2u);
  const auto second = pretrain(2, with(keep, {"--use-distributed-optimizer"}));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("saved by tp=2 x cp=1 x dp=1 x pp=2 (micro batch 2), resuming with tp=1"));
  EXPECT_EQ(with(fields(first, "lm loss"), fields(second, "lm loss")), fields(whole, "lm loss"));
  EXPECT_EQ(fields(second, "lm loss value"), fields(whole, "lm loss value"));

  const auto over = pretrain(2, with(keep, {"--tensor-model-parallel-size", "2"}));
  EXPECT_EQ(over.code, 0) << over.err;
  EXPECT_THAT(over.err, HasSubstr("nothing is left to train: the checkpoint has already reached 32 samples"));
  EXPECT_EQ(fields(over, "lm loss value"), fields(whole, "lm loss value")) << "evaluated again, from the checkpoint";

  const auto other = pretrain(0, with(keep, {"--seed", "5"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("it was saved with --seed 1234, and --seed 5 is given"));
  const auto heads = pretrain(0, with(keep, {"--num-attention-heads", "2"}));
  EXPECT_THAT(heads.err, HasSubstr("it was saved with --num-attention-heads 4, and 2 is given"));
  const auto finetuned = pretrain(0, with(with(kModel, schedule), {"--load", save, "--finetune", "--seed", "5"}));
  EXPECT_EQ(finetuned.code, 0) << finetuned.err;
  EXPECT_EQ(fields(finetuned, "lm loss").size(), 4u) << "from step 0";
  EXPECT_LT(*parse_double(fields(finetuned, "lm loss").front()), *parse_double(fields(whole, "lm loss")[1]));
  // A place that is not told does not mean the beginning.
  test::rename_value(save + "/step-0000004", "consumed_samples", "consumed_sample");
  const auto nowhere = pretrain(2, keep);
  EXPECT_NE(nowhere.code, 0);
  EXPECT_THAT(nowhere.err,
              AllOf(HasSubstr("its data.consumed_samples is not there, expected a whole number, 0 or more"),
                    HasSubstr("it has a data.consumed_sample; ")));
}

// --save begins with the text of --load: the folders are two.
TEST_F(PretrainGpt, ARestartedFinetuneResumesItsOwnCheckpoint) {
  const std::string base = folder_ + "/run", own = base + "-finetuned";
  ASSERT_EQ(pretrain(0, with(kModel, {"--train-iters", "4", "--save", base})).code, 0);
  const auto finetune_from = [&](const std::string& load) {
    return with(kModel, {"--train-iters", "10", "--load", load, "--finetune", "--save", own});
  };
  const Words finetune = finetune_from(base);
  const auto first = pretrain(0, with(finetune, {"--exit-interval", "6"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("starting at step 0 with the weights of " + base + "/step-0000004"));
  EXPECT_EQ(fields(first, "lm loss").size(), 6u);
  auto restarted = kOneThread;
  restarted["TUTTI_GENERATION"] = "1";
  const auto second = testing::run(with({PRETRAIN_GPT}, with(finetune, {"--exit-interval", "3"})), restarted);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("resuming after step 6 from " + own + "/step-0000006"));
  EXPECT_EQ(trim(fields(second, "consumed samples").front()), "56");
  EXPECT_FALSE(std::filesystem::exists(own + "/step-0000003")) << "a second history";
  // Started again by the user, as code 75 asks for.
  const auto again = pretrain(0, with(finetune_from(base + "/"), {"--exit-interval", "1"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resuming after step 9 from " + own + "/step-0000009"));
  EXPECT_EQ(trim(fields(again, "consumed samples").front()), "80");
  // Fine-tuned from another checkpoint, it would begin at step 0 before the checkpoints that are there.
  const auto anew = pretrain(0, finetune_from(base + "/step-0000004"));
  EXPECT_EQ(anew.code, 2);
  EXPECT_THAT(anew.err, HasSubstr(own + " already has a checkpoint of step 10, and this run begins at step 0 with the "
                                        "weights of "));
}

TEST_F(PretrainGpt, PathsMeanTheSameWithASlashBehindThem) {
  const std::string save = folder_ + "/run";
  const Words line = with(kModel, {"--eval-iters", "0"});
  ASSERT_EQ(pretrain(0, with(line, {"--train-iters", "2", "--save", save})).code, 0);
  const auto finetuned =
      pretrain(0, with(line, {"--train-iters", "3", "--load", save + "/step-0000002/", "--finetune", "--seed", "7"}));
  ASSERT_EQ(finetuned.code, 0) << finetuned.err;
  EXPECT_EQ(trim(fields(finetuned, "consumed samples").front()), "8") << "from step 0";
  // What was found and not named has to be this user's own.
  std::filesystem::permissions(save + "/step-0000002", std::filesystem::perms::all);
  for (const std::string& load : {save, save + "/", folder_ + "/./run"}) {
    const auto refused = pretrain(0, with(line, {"--train-iters", "3", "--load", load, "--save", save}));
    EXPECT_EQ(refused.code, 2) << load;
    EXPECT_THAT(refused.err, HasSubstr("the checkpoint to resume from is not safe")) << load;
  }
}

TEST_F(PretrainGpt, DataInAnotherOrderOrLengthIsReportedOnceAndTheRunContinues) {
  const std::string save = folder_ + "/run";
  const Words line = with(kModel, {"--eval-iters", "0"});
  const auto saved = pretrain(0, with(line, {"--train-iters", "2", "--save", save}));
  ASSERT_EQ(saved.code, 0) << saved.err;
  const Words on = with(line, {"--train-iters", "3", "--load", save});
  const auto told = [&](int ranks, const Words& more, const std::string& words) {
    const auto ended = pretrain(ranks, with(on, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(fields(ended, "lm loss").size(), 1u);
    EXPECT_THAT(ended.err, HasSubstr("the checkpoint " + save + "/step-0000002 was saved with " + words));
    EXPECT_EQ(ended.err.find("samples so far"), ended.err.rfind("samples so far")) << ended.err;
  };
  told(2, {"--dataloader-type", "cyclic"},
       "--dataloader-type single, and --dataloader-type cyclic is given: the 16 samples so far were the first in that "
       "order, so training repeats some of the data and skips some");
  told(0, {"--seq-length", "8"},
       "--seq-length 16, and --seq-length 8 is given: the 16 samples so far were of that length");
  for (const Words& quiet :
       {Words(), Words{"--seq-length", "8", "--skip-train"}, Words{"--seq-length", "8", "--finetune"}})
    EXPECT_THAT(pretrain(0, with(on, quiet)).err, Not(HasSubstr("was saved with")));
}

// A checkpoint that has more than the model is of another one, whichever part of it a rank reads.
TEST_F(PretrainGpt, ASmallerModelTakesNoPartOfACheckpoint) {
  const std::string save = folder_ + "/run";
  const Words line = with(kModel, {"--train-iters", "1", "--eval-iters", "0"}),
              pp = {"--pipeline-model-parallel-size", "2", "--tensor-model-parallel-size", "2"};
  const auto saved = pretrain(4, with(with(line, pp), {"--save", save, "--untie-embeddings-and-output-weights"}));
  ASSERT_EQ(saved.code, 0) << saved.err;
  const Words untied = {"--load", save, "--untie-embeddings-and-output-weights"};
  const auto refused = [&](int ranks, const Words& more, const std::string& words) {
    const auto ended = pretrain(ranks, with(line, more));
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("is of another model: "), HasSubstr(words)));
  };
  refused(0, with(untied, {"--num-layers", "2"}), "give the options of the run that saved it: --num-layers 4");
  refused(4, with(with(untied, pp), {"--num-layers", "2", "--finetune"}), "it has more: decoder.layers.2.");
  refused(0, with(untied, {"--normalization", "RMSNorm"}), "it was saved with --normalization LayerNorm, and RMSNorm");
  refused(2, with(untied, {"--disable-bias-linear", "--pipeline-model-parallel-size", "2"}),
          "saved it: no --disable-bias-linear");
  refused(0, {"--load", save, "--no-load-optim"}, "it has more: output_layer.weight");
  const auto goes_on = pretrain(0, with(with(line, untied), {"--train-iters", "2", "--no-load-optim"}));
  EXPECT_EQ(goes_on.code, 0) << goes_on.err;
}

// What a sharded optimizer keeps is saved as parts of whole tensors: of layers that are divided by rows, by columns and
// in blocks, over the ranks of a stage, and any grid takes it up.
TEST_F(PretrainGpt, AShardedOptimizerResumesOnAnyGrid) {
  const Words schedule = {
      "--train-iters",        "4",    "--lr-decay-style",   "constant", "--weight-decay-incr-style", "linear",
      "--start-weight-decay", "0.01", "--end-weight-decay", "0.1"};
  const auto whole = pretrain(0, with(kModel, schedule));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Words tp = {"--tensor-model-parallel-size", "2"}, pp = {"--pipeline-model-parallel-size", "2"},
              sharded = {"--use-distributed-optimizer"}, fsdp = {"--fsdp"};
  const std::vector<std::pair<OnGrid, OnGrid>> moves = {
      {{"", 4, with(fsdp, tp)}, {"shards to stages", 4, with(sharded, pp)}},
      {{"", 4, with(pp, {"--pipeline-schedule", "1f1b"})}, {"stages to shards", 2, {"--use-torch-fsdp2"}}},
      {{"", 4, with(sharded, tp)}, {"tensor to stages", 4, with(sharded, with(pp, {"--pipeline-schedule", "zb-v"}))}},
      {{"", 4, with(sharded, pp)}, {"stages to one", 0, {}}},
      {{"", 0, {}}, {"one to all", 8, with(sharded, with(with(tp, pp), {"--sequence-parallel"}))}},
  };
  for (const auto& [from, to] : moves) {
    const std::string save = folder_ + "/" + std::to_string(from.ranks) + to.name;
    const Words keep = with(with(kModel, schedule), {"--save", save, "--load", save});
    const auto first = pretrain(from.ranks, with(with(keep, {"--exit-interval", "2"}), from.options));
    ASSERT_EQ(first.code, 0) << first.err;
    const auto second = pretrain(to.ranks, with(keep, to.options));
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(with(fields(first, "lm loss"), fields(second, "lm loss")), fields(whole, "lm loss")) << to.name;
    EXPECT_EQ(fields(second, "lm loss value"), fields(whole, "lm loss value")) << to.name;
  }
}

// What an optimizer keeps is looked at before it is used.
TEST_F(PretrainGpt, AStepCounterBeyondAllStepsIsRejected) {
  const std::string save = folder_ + "/run", step = save + "/step-0000002";
  ASSERT_EQ(pretrain(0, with(kModel, {"--train-iters", "2", "--save", save})).code, 0);
  const auto source = open_tensors(step).or_throw();
  std::vector<std::vector<std::byte>> values;
  std::vector<StateBox> boxes;
  for (const auto& [key, tensor] : source->tensors()) {
    values.emplace_back(tensor.elements() * tensor.element_bytes);
    source->read(key, values.back()).or_throw();
    if (key.state == "step") values.back().assign({{}, {}, {}, {}, {}, {}, {}, std::byte(0x80)});
    boxes.push_back({.key = key, .dtype = *tensor.known_dtype(), .shape = tensor.shape, .data = values.back().data()});
  }
  save_checkpoint(save, boxes, *source->facts()).or_throw();
  const auto refused = pretrain(0, with(kModel, {"--train-iters", "4", "--load", save, "--save", save}));
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, ContainsRegex("step-0000002: step of [a-z0-9_.]+ is -9223372036854775808, expected 0 to"));
}

// The launcher names the rank, starts all again, and they end where those that nobody disturbed end.
TEST_F(PretrainGpt, ARankThatIsKilledIsNamedAndCostsNothing) {
  const Words line = with(kModel, {"--train-iters", "60", "--tensor-model-parallel-size", "2",
                                   "--pipeline-model-parallel-size", "2", "--use-distributed-optimizer"});
  const auto straight = pretrain(4, line);
  ASSERT_EQ(straight.code, 0) << straight.err;
  const std::string save = folder_ + "/run";
  const Words start = {TUTTI_COMMAND, "run", "-n", "4", "--max-restarts", "1", "--", PRETRAIN_GPT};
  testing::Running job(with(with(start, line), {"--save", save, "--save-interval", "10", "--keep", "2"}), kOneThread);
  job.await_out("iteration       15/      60");
  const auto ranks = test::processes_under(job.pid(), "pretrain_gpt");
  ASSERT_EQ(ranks.size(), 4u);
  ASSERT_EQ(::kill(ranks[2], SIGKILL), 0);
  const auto ended = job.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err,
              ContainsRegex("rank [0-3] \\(pid " + std::to_string(ranks[2]) + "[^)]*\\) was killed by SIGKILL"));
  EXPECT_THAT(ended.err, HasSubstr("resuming after step "));
  EXPECT_EQ(fields(ended, "lm loss").back(), fields(straight, "lm loss").back());
  EXPECT_EQ(fields(ended, "lm loss value"), fields(straight, "lm loss value"));
}

// Told to stop, it saves and leaves with 75; the same command goes on.
TEST_F(PretrainGpt, ARunThatGetsAStopSignalSavesAndResumes) {
  const Words line = with(kModel, {"--train-iters", "60", "--pipeline-model-parallel-size", "2"});
  const auto straight = pretrain(2, line);
  ASSERT_EQ(straight.code, 0) << straight.err;
  const std::string save = folder_ + "/run";
  const Words keep = with({TUTTI_COMMAND, "run", "-n", "2", "--", PRETRAIN_GPT}, with(line, {"--save", save}));
  testing::Running job(keep, kOneThread);
  job.await_out("iteration       15/      60");
  job.send(SIGTERM);
  const auto told = job.wait();
  ASSERT_EQ(told.code, 75) << told.err;
  EXPECT_EQ(fields(told, "lm loss value"), Words()) << "it is not trained yet";
  const auto resumed = testing::run(keep, kOneThread);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step "));
  EXPECT_EQ(with(fields(told, "lm loss"), fields(resumed, "lm loss")), fields(straight, "lm loss"));
  EXPECT_EQ(fields(resumed, "lm loss value"), fields(straight, "lm loss value"));
}

TEST_F(PretrainGpt, GivesItsWeightsToHuggingFaceAndTakesThem) {
  Words line = kModel;
  std::erase(line, "--fp64");
  const std::string save = folder_ + "/run", file = folder_ + "/model.safetensors", back = folder_ + "/back";
  const auto trained =
      pretrain(2, with(line, {"--train-iters", "2", "--save", save, "--tensor-model-parallel-size", "2"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto gpt2 = [](const Words& words) {
    return tutti::testing::run(with({TUTTI_COMMAND, "ckpt", "gpt2"}, words));
  };
  const auto given = gpt2({save, file});
  ASSERT_EQ(given.code, 0) << given.err;
  const auto listed = tutti::testing::run({TUTTI_COMMAND, "ckpt", "ls", file});
  for (const char* text : {"h.3.attn.c_attn.weight", "[32, 96]", "wte.weight", "[99, 32]", "ln_f.bias"})
    EXPECT_THAT(listed.out, HasSubstr(text));
  const auto taken = gpt2({file, back, "--heads", "4"});
  ASSERT_EQ(taken.code, 0) << taken.err;
  const auto loaded =
      pretrain(2, with(line, {"--skip-train", "--load", back, "--finetune", "--pipeline-model-parallel-size", "2"}));
  EXPECT_EQ(loaded.code, 0) << loaded.err;
  // The validation of a run of 2 steps takes the same samples.
  EXPECT_EQ(fields(loaded, "lm loss value"), fields(trained, "lm loss value"));
  const auto smaller = pretrain(0, with(line, {"--skip-train", "--load", back, "--finetune", "--num-layers", "2"}));
  EXPECT_EQ(smaller.code, 2);
  EXPECT_THAT(smaller.err, HasSubstr("it has more: decoder.layers.2."));
  EXPECT_EQ(gpt2({file, back, "--heads", "5"}).code, 2);
  const auto none =
      pretrain(0, with(line, {"--train-iters", "1", "--save", folder_ + "/llama", "--normalization", "RMSNorm"}));
  ASSERT_EQ(none.code, 0) << none.err;
  const auto refused = gpt2({folder_ + "/llama", folder_ + "/no.safetensors"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is no GPT-2: it lacks "));
}

TEST_F(PretrainGpt, ReadsTextAndResumesWithIt) {
  const std::string text = folder_ + "/text.txt", prefix = folder_ + "/text", save = folder_ + "/run";
  {
    std::ofstream out(text);
    for (int i = 0; i < 1000; ++i) out << "abcdefghij";
  }
  const auto made = tutti::testing::run({TUTTI_COMMAND, "data", "tokenize", text, "--output", prefix});
  ASSERT_EQ(made.code, 0) << made.err;
  Words line = kModel;
  std::erase(line, "--mock-data");
  std::erase(line, "--fp64");
  line.erase(std::find(line.begin(), line.end(), "--vocab-size"),
             std::find(line.begin(), line.end(), "--vocab-size") + 2);
  line = with(line, {"--data-path",
                     prefix,
                     "--split",
                     "1",
                     "--tokenizer-type",
                     "byte",
                     "--eval-iters",
                     "0",
                     "--hidden-dropout",
                     "0",
                     "--attention-dropout",
                     "0",
                     "--train-iters",
                     "60",
                     "--save",
                     save,
                     "--load",
                     save,
                     "--log-interval",
                     "60"});
  const auto trained = pretrain(2, line);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto generated = pretrain(2, with(line, {"--skip-train", "--generate", "abc", "--generate-tokens", "12",
                                                 "--temperature", "0", "--tensor-model-parallel-size", "2"}));
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_THAT(generated.out, HasSubstr("abcdefghijabcde"));
  const auto text_of = [&](int ranks, const Words& more) {
    const auto ended = pretrain(ranks, with(with(line, {"--skip-train", "--generate", "abc", "--generate-tokens", "20",
                                                        "--temperature", "2", "--top-k", "40"}),
                                            more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out.substr(ended.out.find("abc"));
  };
  const std::string drawn = text_of(1, {});
  EXPECT_GE(drawn.size(), 20u);
  const Words pp = {"--pipeline-model-parallel-size", "2"};
  EXPECT_EQ(text_of(2, pp), drawn);
  EXPECT_EQ(text_of(2, {"--context-parallel-size", "2"}), drawn);
  EXPECT_EQ(text_of(2, with(pp, {"--pipeline-schedule", "zb-v"})), drawn) << "the first rank has the last stage";
  EXPECT_EQ(text_of(8, with(pp, {"--context-parallel-size", "2", "--tensor-model-parallel-size", "2",
                                 "--sequence-parallel"})),
            drawn);
}

}  // namespace
}  // namespace tutti
