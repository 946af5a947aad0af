// What the command line of pretrain_gpt means, what it refuses, and what a grid makes of it. Without LibTorch.
#include "apps/options/pretrain_gpt_options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apps/options/option_parser.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSmall =
    "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 2 --mock-data --vocab-size 99 --train-iters 10 --lr 1e-3 ";

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const auto& word : split(text, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

constexpr ProgramHelp kHelp = {"pretrain_gpt", "", ""};

// A command line, and the mistake in it.
struct Parsed {
  PretrainGptCommand command;
  OptionParser line{kHelp, pretrain_gpt_options(command)};
  std::optional<Error> mistake;

  explicit Parsed(const std::vector<std::string>& words) {
    line.parse(words, [&](const std::string&, const Error& error) { mistake = error; });
  }
};

Result<gpt::Options> read(const std::string& more, int world = 1, const std::string& base = kSmall) {
  const Parsed parsed(words_of(base + more));
  if (parsed.mistake) return *parsed.mistake;
  return gpt::for_world(parsed.command.options, world);
}

std::string refusal(const std::string& more, int world = 1, const std::string& base = kSmall) {
  const auto options = read(more, world, base);
  return options.ok() ? "accepted" : options.error().detail + " | " + options.error().hint;
}

TEST(PretrainGptOptions, DefaultsAreThoseOfMegatron) {
  const auto options = read("").or_throw();
  EXPECT_EQ(options.model.ffn, 128);
  EXPECT_EQ(options.model.head_size, 8);
  EXPECT_EQ(options.model.query_groups, 4);
  EXPECT_EQ(options.model.vocabulary, 100) << "NullTokenizer has one more for the end of a document";
  EXPECT_TRUE(options.model.tied);
  EXPECT_EQ(options.model.attention_dropout, 0.1);
  EXPECT_EQ(options.optimizer.clip_grad, 1);
  EXPECT_EQ(options.optimizer.weight_decay.end, 0.01);
  EXPECT_EQ(options.batches.global_batch, 2) << "micro batch x data parallel size";
  EXPECT_EQ(options.train_samples, 20);
  EXPECT_EQ(options.optimizer.learning_rate.decay_samples, 20);
  EXPECT_EQ(gpt::steps_left(options, 0), 10);
  EXPECT_EQ(gpt::steps_left(options, 14), 3);
  EXPECT_EQ(read("--swiglu").or_throw().model.ffn, 64);
}

// What --parallel auto may not change, or the mistake.
std::string given_parts(const std::string& more) {
  const Parsed parsed(
      words_of("--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
               "--mock-data --vocab-size 99 --train-samples 80 --lr 1e-3 --parallel auto " +
               more));
  return parsed.mistake ? parsed.mistake->detail : join(parsed.command.given_parts, ",");
}

TEST(PretrainGptOptions, AutomaticParallelismKeepsWhatIsGiven) {
  EXPECT_EQ(given_parts("--global-batch-size 8"), "");
  EXPECT_EQ(given_parts("--global-batch-size 8 --tensor-model-parallel-size 1 --micro-batch-size 2 --fsdp"),
            "tp=1,mbs=2,zero=3");
  EXPECT_EQ(given_parts("--global-batch-size 8 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank "
                        "2 --pipeline-schedule interleaved --recompute-granularity full --recompute-method block "
                        "--recompute-num-layers 1"),
            "pp=2,chunks=2,schedule=interleaved,recompute=1");
  EXPECT_THAT(given_parts(""), HasSubstr("--global-batch-size is missing"));
  EXPECT_THAT(given_parts("--global-batch-size 8 --rampup-batch-size 2 2 20"), HasSubstr("for one size"));
  EXPECT_EQ(given_parts("--global-batch-size 8 --decoder-first-pipeline-num-layers 1"), "first=1");
  EXPECT_THAT(given_parts("--global-batch-size 8 --num-layers-per-virtual-pipeline-stage 1"),
              HasSubstr("is no part of what --parallel auto chooses"));
  EXPECT_THAT(refusal("--cluster cpu"), HasSubstr("--parallel auto"));
  // Only CPUs are measured.
  EXPECT_EQ(given_parts("--global-batch-size 8 --device cuda"), "--device and --parallel auto were both given");
  EXPECT_EQ(given_parts("--global-batch-size 8 --device cuda --cluster h100-sxm"), "");
}

TEST(PretrainGptOptions, APlanOfEveryKindBecomesOptionsThatTheRanksCanTake) {
  Parsed parsed(
      words_of("--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 "
               "--max-position-embeddings 16 --mock-data --vocab-size 99 --train-iters 10 --lr 1e-3 "
               "--parallel auto --global-batch-size 8"));
  ASSERT_FALSE(parsed.mistake);
  const gpt::Options& options = parsed.command.options;
  std::int64_t plans = 0;
  planning::Refusals refusals;
  planning::for_each_plan(
      options.model, tutti_runtime(options.model.precision), 8, 4, {},
      [&](ParallelPlan plan) {
        ++plans;
        if (plan.stages() > 1) plan.ends.last = 1;
        const auto taken = gpt::for_world(gpt::with_plan(options, plan), 4);
        ASSERT_TRUE(taken.ok()) << to_string(plan) << ": " << taken.error().detail;
        EXPECT_EQ(taken->batches.global_batch, 8);
        EXPECT_EQ(taken->batches.replicas, plan.data) << to_string(plan);
      },
      refusals);
  EXPECT_GT(plans, 100);
  EXPECT_TRUE(gpt::check_can_choose(options, 4, {"tp=2"}).ok());
  const Status prime = gpt::check_can_choose(options, 5, {});
  ASSERT_FALSE(prime.ok());
  EXPECT_THAT(prime.error().detail, HasSubstr("no plan divides --global-batch-size 8 and 4 layers among 5 ranks"));
}

TEST(PretrainGptOptions, ALossScaleAdaptsWithF16AloneAndIsFixedWithAll) {
  EXPECT_FALSE(read("").or_throw().optimizer.loss_scale);
  EXPECT_FALSE(read("--bf16").or_throw().optimizer.loss_scale);
  EXPECT_EQ(read("--fp16").or_throw().optimizer.loss_scale->initial, 4294967296.0);
  EXPECT_EQ(read("--fp16").or_throw().optimizer.loss_scale->window, 1000);
  EXPECT_EQ(read("--fp16").or_throw().optimizer.loss_scale->hysteresis, 2);
  EXPECT_EQ(read("--fp16 --hysteresis 5").or_throw().optimizer.loss_scale->hysteresis, 5);
  EXPECT_EQ(read("--bf16 --loss-scale 8").or_throw().optimizer.loss_scale->initial, 8);
}

TEST(PretrainGptOptions, AGridMakesTheBatch) {
  const auto options =
      read("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 16 --lr-warmup-iters 2",
           8)
          .or_throw();
  EXPECT_EQ(options.batches.replicas, 2);
  EXPECT_EQ(options.train_samples, 160);
  EXPECT_EQ(options.optimizer.learning_rate.warm_up_samples, 32);
  const auto stages = gpt::stages_of(options);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[1], (LayerRange{2, 4}));
  EXPECT_EQ(
      gpt::stages_of(read("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1", 2).or_throw())[0],
      (LayerRange{0, 1}));
}

TEST(PretrainGptOptions, BatchesThatGrowAreCountedInSamples) {
  constexpr const char* kSamples =
      "--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 10 --max-position-embeddings 16 "
      "--micro-batch-size 2 --mock-data --vocab-size 99 --train-samples 40 --lr 1e-3 --eval-iters 0 ";
  auto options = read("--global-batch-size 8 --rampup-batch-size 4 4 16", 1, kSamples).or_throw();
  EXPECT_EQ(gpt::steps_left(options, 0), 7) << "4 x 4 samples, then 3 x 8";
  EXPECT_EQ(gpt::steps_left(options, 16), 3);
  auto words = words_of(kSamples);
  words.insert(words.end(), {"--step-batch-size-schedule", "0:2 200:4"});  // in tokens: 20 samples
  options = gpt::for_world(Parsed(words).command.options, 1).or_throw();
  EXPECT_EQ(gpt::steps_left(options, 0), 15) << "10 x 2 samples, then 5 x 4";
}

TEST(PretrainGptOptions, MistakesAreSentences) {
  EXPECT_THAT(refusal("--seq-length 32"),
              AllOf(HasSubstr("a sequence of 32 tokens (--seq-length) is longer than the 16"),
                    HasSubstr("--max-position-embeddings 32 would do")));
  EXPECT_THAT(refusal("--num-attention-heads 5"),
              HasSubstr("--hidden-size 32 cannot be divided into --num-attention-heads 5"));
  EXPECT_THAT(refusal("--num-query-groups 2"), HasSubstr("is for --group-query-attention"));
  EXPECT_THAT(refusal("--train-samples 5"), HasSubstr("--train-iters and --train-samples were both given"));
  EXPECT_THAT(refusal("--lr-warmup-samples 5"), HasSubstr("--train-iters and --lr-warmup-samples were both given"));
  EXPECT_THAT(refusal("--rampup-batch-size 2 2 10 --global-batch-size 4"), HasSubstr("whose batches grow"));
  EXPECT_THAT(refusal("--data-path x"), HasSubstr("--data-path and --mock-data were both given"));
  EXPECT_THAT(refusal("--min-lr 1"), HasSubstr("--min-lr 1 is more than --lr 0.001"));
  EXPECT_THAT(refusal("--save-interval 3"), HasSubstr("--save-interval is for --save-dir, which is not given"));
  EXPECT_THAT(refusal("--finetune"), HasSubstr("--finetune is for --load, which is not given"));
  EXPECT_THAT(refusal("--hidden-dropout 1"), HasSubstr("leaves nothing"));
  EXPECT_THAT(refusal("--lr-decay-style WSD"), HasSubstr("needs the step at which the rate falls"));
  EXPECT_THAT(refusal("--recompute-granularity selective --recompute-method block"),
              HasSubstr("are for --recompute-granularity full"));
  EXPECT_THAT(refusal("--fp16 --bf16"), HasSubstr("--bf16 and --fp16 were both given"));
  EXPECT_THAT(refusal("--hysteresis 3"), HasSubstr("--hysteresis is for --fp16, which is not given"));
  EXPECT_THAT(refusal("--fp16 --loss-scale 8 --min-loss-scale 2"),
              HasSubstr("--min-loss-scale and --loss-scale were both given"));
  EXPECT_THAT(refusal("--loss-scale 0"), HasSubstr("--loss-scale is 0; expected a positive number within f32"));
  EXPECT_THAT(refusal("--fp16 --initial-loss-scale 2 --min-loss-scale 4"), HasSubstr("is more than"));
  EXPECT_THAT(refusal("--num-experts 4"), HasSubstr("there are no mixtures of experts"));
  EXPECT_EQ(read("--reset-position-ids").or_throw().end_of_document, 99);
  EXPECT_THAT(refusal("--generate Once"), HasSubstr("--generate needs a tokenizer"));
}

std::vector<std::string> without_effect(const std::string& more) {
  return Parsed(words_of(kSmall + more)).line.without_effect();
}

TEST(PretrainGptOptions, AnOptionWithoutEffectIsReported) {
  struct Case {
    const char *option, *none, *needs;  // with `needs` it has an effect
  };
  for (const auto& [option, none, needs] : {
           Case{"--rotary-base 5", "without --position-embedding-type rope", "--position-embedding-type rope"},
           Case{"--rotary-percent 1", "without --position-embedding-type rope", "--position-embedding-type rope"},
           Case{"--adam-beta1 0.9 --optimizer sgd", "without --optimizer adam", "--optimizer adam"},
           Case{"--adam-beta2 0.9 --optimizer sgd", "without --optimizer adam", "--optimizer adam"},
           Case{"--adam-eps 1e-6 --optimizer sgd", "without --optimizer adam", "--optimizer adam"},
           Case{"--sgd-momentum 0.5", "without --optimizer sgd", "--optimizer sgd"},
           Case{"--min-lr 0 --lr-decay-style constant", "with --lr-decay-style constant", "--lr-decay-style cosine"},
           Case{"--lr-decay-iters 9 --lr-decay-style constant", "with --lr-decay-style constant",
                "--lr-warmup-fraction 0.1"},
           Case{"--lr-decay-samples 9 --lr-decay-style constant", "with --lr-decay-style constant",
                "--lr-decay-style cosine"},
           Case{"--lr-wsd-decay-iters 5", "without --lr-decay-style WSD", "--lr-decay-style WSD"},
           Case{"--lr-wsd-decay-samples 5", "without --lr-decay-style WSD", "--lr-decay-style WSD"},
           Case{"--lr-wsd-decay-style linear", "without --lr-decay-style WSD", "--lr-decay-style WSD"},
           Case{"--lr-warmup-init 1e-4", "without a warm-up", "--lr-warmup-iters 2"},
           Case{"--weight-decay 0.1 --weight-decay-incr-style cosine --start-weight-decay 0 --end-weight-decay 1",
                "with --weight-decay-incr-style linear or cosine", "--weight-decay-incr-style constant"},
           Case{"--sequence-parallel", "without --tensor-model-parallel-size 2 or more",
                "--tensor-model-parallel-size 2"},
           Case{"--no-scatter-gather-tensors-in-pipeline --tensor-model-parallel-size 2", "without --tensor-model",
                "--pipeline-model-parallel-size 2"},
           Case{"--tiktoken-pattern v2", "without --tokenizer-type TikTokenizer", "--tokenizer-model x"},
           Case{"--recompute-granularity selective", "with selective: attention scores",
                "--recompute-granularity full"},
           Case{"--eval-interval 5 --eval-iters 0", "with --eval-iters 0", "--eval-iters 3"},
           Case{"--no-save-optim", "without --save-dir", "--save x"},
           Case{"--timing-log-option max", "without --timing-log-level 1 or 2", "--timing-log-level 1"},
           Case{"--tensorboard-log-interval 2", "without --tensorboard-dir", "--tensorboard-dir x"},
           Case{"--generate-tokens 5", "without --generate", "--generate x"},
           Case{"--temperature 1", "without --generate", "--generate x"},
           Case{"--top-k 0", "without --generate, or with --temperature 0", "--generate x"},
       }) {
    const std::string text = option, name = text.substr(0, text.find(' '));
    EXPECT_THAT(without_effect(text), ::testing::ElementsAre(HasSubstr(name + " has no effect " + none)));
    EXPECT_THAT(without_effect(text + " " + needs), ::testing::IsEmpty()) << text;
  }
  EXPECT_THAT(without_effect("--generate x --temperature 0.0 --top-k 5"), ::testing::SizeIs(1));
  EXPECT_THAT(without_effect(""), ::testing::IsEmpty());
}

TEST(PretrainGptOptions, GridsThatDoNotDivideAreSentences) {
  EXPECT_THAT(refusal("--tensor-model-parallel-size 2", 3),
              AllOf(HasSubstr("3 ranks cannot be laid out"), HasSubstr("start 2 or 4 ranks")));
  EXPECT_THAT(refusal("--tensor-model-parallel-size 3", 3),
              HasSubstr("4 attention heads (--num-attention-heads) cannot be divided"));
  EXPECT_THAT(refusal("--pipeline-model-parallel-size 8", 8), HasSubstr("4 layers cannot be divided over 8 stages"));
  EXPECT_THAT(refusal("--global-batch-size 6", 2), HasSubstr("choose 4 or 8"));
  EXPECT_THAT(refusal("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                      "--microbatch-group-size-per-virtual-pipeline-stage 1",
                      2),
              HasSubstr("groups of 1 microbatches"));
  EXPECT_THAT(refusal("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                      "--microbatch-group-size-per-virtual-pipeline-stage 5 --global-batch-size 8",
                      2),
              HasSubstr("-stage 5: a step has 4 microbatches (8 samples in 1 replicas) | 4 or less"));
  EXPECT_THAT(refusal("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
                      "--decoder-last-pipeline-num-layers 2",
                      4),
              AllOf(HasSubstr("the first and the last stage leave 0 of 4 layers to the other 2 stages"),
                    HasSubstr("| --decoder-first-pipeline-num-layers and")));
  EXPECT_THAT(
      refusal("--pipeline-model-parallel-size 2 --pipeline-schedule 1f1b --num-virtual-stages-per-pipeline-rank 2", 2),
      HasSubstr("2 chunks a rank, expected 1"));
  EXPECT_THAT(refusal("--num-virtual-stages-per-pipeline-rank 2"), HasSubstr("are for a pipeline of several"));
  EXPECT_THAT(refusal("--overlap-grad-reduce --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1", 4),
              HasSubstr("puts gradients of weights off to the end of the step"));
  const std::string both = "--overlap-grad-reduce --use-distributed-optimizer ";
  EXPECT_THAT(refusal(both + "--pipeline-model-parallel-size 2", 4), HasSubstr("summed after it"));
  EXPECT_THAT(refusal(both + "--tensor-model-parallel-size 2 --sequence-parallel", 4), HasSubstr("summed after it"));
  EXPECT_EQ(refusal(both + "--tensor-model-parallel-size 2", 4), "accepted");
  EXPECT_EQ(refusal("--fsdp --tensor-model-parallel-size 2 --sequence-parallel", 4), "accepted");
  EXPECT_THAT(refusal("--fsdp --pipeline-model-parallel-size 2", 4),
              HasSubstr("keeps several micro batches under way"));
  EXPECT_THAT(refusal("--fsdp --pipeline-schedule zb-h1", 2), HasSubstr("puts backward passes or gradients off"));
  EXPECT_THAT(refusal("--use-torch-fsdp2 --use-distributed-optimizer", 2), HasSubstr("which --fsdp does already"));
  EXPECT_THAT(refusal("--fsdp --overlap-grad-reduce", 2), HasSubstr("averages while backward runs"));
}

// The options of Megatron-LM's examples/llama/train_llama3_8b_h100_fp8.sh that pretrain_gpt does not have.
constexpr const char* kOfLlama3 =
    "--use-mcore-models --attention-backend fused --apply-layernorm-1p --decoupled-lr 5e-4 --decoupled-min-lr 4e-5 "
    "--grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc "
    "--empty-unused-memory-level 1 --fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max "
    "--fp8-param-gather --sequence-parallel --overlap-param-gather --data-cache-path x --tiktoken-pattern v2 "
    "--split 99,1,0 --no-create-attention-mask-in-dataloader --no-mmap-bin-files --num-workers 1 --profile "
    "--profile-step-start 4 --profile-step-end 6 --ckpt-format torch_dist --use-distributed-optimizer "
    "--overlap-grad-reduce ";

std::string without(std::string text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) text.replace(text.find(part), part.size(), " ");
  return text;
}

TEST(PretrainGptOptions, AllThatIsRejectedIsListedAtOnce) {
  const std::string text = refusal(kOfLlama3);
  EXPECT_THAT(text, HasSubstr("5 options are not supported:\n  --"));
  for (const char* rejected : {"--apply-layernorm-1p:", "--decoupled-lr:", "--decoupled-min-lr:",
                               "--calculate-per-token-loss:", "--fp8-format: there is no f8 arithmetic (hint: --bf16)"})
    EXPECT_THAT(text, HasSubstr(std::string("\n  ") + rejected));
}

TEST(PretrainGptOptions, WhatChangesNothingIsAcceptedAndWarnedOf) {
  const std::string accepted =
      without(kOfLlama3, {"--apply-layernorm-1p", "--decoupled-lr 5e-4", "--decoupled-min-lr 4e-5",
                          "--calculate-per-token-loss", "--fp8-format hybrid"});
  EXPECT_EQ(refusal(accepted), "accepted");
  EXPECT_FALSE(read(accepted).or_throw().parallel.sequence_parallel) << "there are no tensor ranks to divide it over";
  const auto sentences = without_effect(accepted);
  EXPECT_THAT(sentences, ::testing::SizeIs(21));
  EXPECT_THAT(sentences, ::testing::Contains("--use-mcore-models has no effect: it is always on"));
  EXPECT_THAT(sentences, ::testing::Contains("--split has no effect with --mock-data"));
  EXPECT_EQ(refusal("--profile-ranks 0 1 2 --recompute-modules core_attn mlp"), "accepted");
}

// Megatron-LM's older examples, such as pretrain_gpt_distributed_with_mp.sh.
TEST(PretrainGptOptions, OldNamesAreAnsweredWithTheNewOnes) {
  EXPECT_THAT(refusal("--checkpoint-activations"), HasSubstr("| --recompute-granularity full"));
  EXPECT_THAT(refusal("--activations-checkpoint-method uniform"),
              HasSubstr("| --recompute-granularity full --recompute-method uniform"));
  EXPECT_EQ(refusal("--data-impl mmap --DDP-impl local"), "accepted");
  EXPECT_THAT(without_effect("--data-impl mmap"), ::testing::ElementsAre(HasSubstr("token files are always mapped")));
}

TEST(PretrainGptOptions, UnknownOptionsAreListedWithTheRejectedOnes) {
  const Error mistake =
      Parsed(words_of(std::string(kSmall) + "--no-such 3 --fp8-format hybrid --num-layer 3")).mistake.value();
  EXPECT_THAT(mistake.detail,
              AllOf(HasSubstr("unknown options:\n  --no-such (hint: pretrain_gpt --help lists the options)\n  "
                              "--num-layer (hint: did you mean --num-layers?)"),
                    HasSubstr("\n--fp8-format is not supported: there is no f8 arithmetic (hint: --bf16)")));
}

TEST(PretrainGptOptions, UnknownOptionsAreFoundBehindOtherWords) {
  const auto mistake_of = [](const std::string& more) {
    return Parsed(words_of(kSmall + more)).mistake.value().detail;
  };
  EXPECT_THAT(mistake_of("-x --no-such 3"),
              AllOf(HasSubstr("unknown options:\n  -x (hint"), HasSubstr("\n  --no-such (hint")));
  EXPECT_EQ(mistake_of("--bf16 true --no-such 3"), "unknown option --no-such");
  EXPECT_EQ(mistake_of("--bf16 true"), "unexpected argument 'true'");
  EXPECT_EQ(mistake_of("-x -3"), "unknown option -x");
}

TEST(PretrainGptOptions, NcclIsListedWithTheOtherRejectedOptions) {
  EXPECT_THAT(refusal("--distributed-backend nccl --fp8-format hybrid"),
              AllOf(HasSubstr("2 options are not supported:\n  --"), HasSubstr("\n  --fp8-format: there is no f8"),
                    HasSubstr("\n  --distributed-backend nccl: NCCL is for GPUs (hint: add --device cuda, or give "
                              "tutti, gloo or mpi)")));
  EXPECT_THAT(refusal("--distributed-backend nccl"), HasSubstr("--distributed-backend nccl is not supported: "));
  EXPECT_EQ(refusal("--distributed-backend nccl --device cuda"), "accepted");
  for (const char* device : {"cuda", "auto"})
    EXPECT_THAT(refusal(std::string("--parallel auto --global-batch-size 8 --device ") + device),
                HasSubstr("add --cluster NAME"));
}

TEST(PretrainGptOptions, TokenizerOptionsThatMegatronHasAreAnswered) {
  EXPECT_THAT(refusal("--tiktoken-num-special-tokens 500 --tiktoken-special-tokens a b"),
              AllOf(HasSubstr("--tiktoken-num-special-tokens: "), HasSubstr("--tiktoken-special-tokens: ")));
  EXPECT_THAT(read("--tokenizer-type TikTokenizer", 1,
                   std::string(kSmall).replace(std::string(kSmall).find("--vocab-size 99"), 15, ""))
                  .error()
                  .detail,
              HasSubstr("--tokenizer-model is missing: a .tiktoken file, or the .json file of Megatron-LM"));
}

TEST(PretrainGptOptions, NamesOfMegatronAreReportedWithTutti) {
  const Parsed parsed(words_of(std::string(kSmall) + "--save a --load b --save-retain-interval 3 --keep 2"));
  EXPECT_FALSE(parsed.mistake);
  EXPECT_EQ(parsed.command.options.checkpoints.folder, "a");
  EXPECT_EQ(parsed.command.options.checkpoints.keep_every, 3);
  EXPECT_EQ(parsed.command.options.load, "b");
  EXPECT_THAT(parsed.line.aliases_given(),
              ::testing::ElementsAre("--save is --save-dir", "--save-retain-interval is --keep-every"));
  EXPECT_THAT(refusal("--save a --save-dir b"),
              HasSubstr("--save-dir and --save were both given | drop one of the two: they are one option"));
}

TEST(PretrainGptOptions, ResumeNamesACheckpointThatMustExist) {
  EXPECT_EQ(read("--resume a").or_throw().load, "a");
  EXPECT_TRUE(read("--resume a").or_throw().must_load);
  EXPECT_FALSE(read("--load a").or_throw().must_load);
  EXPECT_EQ(read("--save-dir a --resume never").or_throw().checkpoints.resume, "never");
  EXPECT_THAT(refusal("--resume a --load b"), HasSubstr("--load and --resume were both given"));
}

TEST(PretrainGptOptions, AnEmptyValueIsRejected) {
  auto words = words_of(kSmall);
  words.insert(words.end(), {"--save-dir", ""});
  EXPECT_THAT(Parsed(words).mistake.value().detail, HasSubstr("--save-dir: an empty value"));
}

}  // namespace
}  // namespace tutti::cli
