// Options of Megatron-LM that pretrain_gpt does not have, each with the reason. An option that would change the model,
// its training or what a run leaves behind is rejected. An option that means what is always so here, or that changes
// nothing, is accepted, and rank 0 warns of it: scripts carry many of these.
#include "apps/options/pretrain_gpt_options.h"

namespace tutti::cli {
namespace {

constexpr const char* kDrop = "drop it";
constexpr const char* kTrace = "--trace FILE.json";
constexpr const char* kTensorboard = "--tensorboard-dir DIR";
constexpr const char* kConvert = "tutti ckpt import, tutti ckpt reshard";

constexpr const char* kCuda = "it chooses among CUDA kernels of Megatron-LM, which are not here";
constexpr const char* kCudaMemory = "it is about CUDA's allocator";
constexpr const char* kExperts = "there are no mixtures of experts";
constexpr const char* kAlways = "it is always on";
constexpr const char* kNever = "there is nothing here that it turns off";
constexpr const char* kRates = "events always have the learning rate, the batch and the loss scale";
constexpr const char* kFloat8 = "it belongs to --fp8-format";
constexpr const char* kBuckets = "buckets are 25 MiB, in the order in which gradients come";
constexpr const char* kOneFormat = "there is one checkpoint format, which fits every grid";
constexpr const char* kScores = "attention scores are never kept, but always recomputed in backward";
constexpr const char* kF32Sums = "gradients are always added and averaged in f32";
constexpr const char* kTwoRates = "all layers have one learning rate";
constexpr const char* kNoGarbage = "there is no garbage collector";
constexpr const char* kNsys = "it is about nsys; --trace FILE.json writes a trace";
constexpr const char* kSends = "sends are never waited for, and receives are posted ahead";
constexpr const char* kMapped = "token files are always mapped, and their pages shared by all ranks of a host";
constexpr const char* kInSeconds = "sample indices are made in seconds, in memory";
constexpr const char* kRandom = "random numbers follow from step, sample and layer, so they have no state";

}  // namespace

const std::vector<ForeignOption>& options_of_megatron() {
  static const std::vector<ForeignOption> options = {
      // Rejected.
      {"--expert-model-parallel-size", true, kExperts, kDrop},
      {"--expert-tensor-parallel-size", true, kExperts, kDrop},
      {"--num-experts", true, kExperts, kDrop},
      {"--moe-router-topk", true, kExperts, kDrop},
      {"--fp8-format", true, "there is no f8 arithmetic", "--bf16"},
      {"--decoupled-lr", true, kTwoRates, kDrop},
      {"--decoupled-min-lr", true, kTwoRates, kDrop},
      {"--pipeline-model-parallel-layout", true, "stages are given by the layers of the first and of the last one",
       "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers"},
      {"--distribute-saved-activations", false, "--sequence-parallel divides what is kept", "--sequence-parallel"},
      {"--checkpoint-activations", false, "Megatron-LM has renamed it", "--recompute-granularity full"},
      {"--checkpoint-num-layers", true, "Megatron-LM has renamed it",
       "--recompute-granularity full --recompute-num-layers N"},
      {"--activations-checkpoint-method", true, "Megatron-LM has renamed it",
       "--recompute-granularity full --recompute-method uniform or block"},
      {"--activations-checkpoint-num-layers", true, "Megatron-LM has renamed it",
       "--recompute-granularity full --recompute-num-layers N"},
      {"--model-parallel-size", true, "Megatron-LM has renamed it", "--tensor-model-parallel-size N"},
      {"--batch-size", true, "Megatron-LM has renamed it", "--micro-batch-size N"},
      {"--warmup", true, "Megatron-LM has renamed it", "--lr-warmup-fraction X"},
      {"--calculate-per-token-loss", false, "the loss of a step is the mean of its microbatches", kDrop},
      {"--add-qkv-bias", false, "all linear layers have a bias, or with --disable-bias-linear none has", kDrop},
      {"--use-rotary-position-embeddings", false, "Megatron-LM has renamed it", "--position-embedding-type rope"},
      {"--rotary-interleaved", false, "rotary positions turn the halves of a head, as GPT-NeoX does",
       "drop it; weights that were trained with it do not fit"},
      {"--qk-layernorm", false, "queries and keys are not normalised", kDrop},
      {"--apply-layernorm-1p", false, "the weights of norms are stored in full, not as their difference from 1", kDrop},
      {"--label-smoothing", true, "the loss is the cross entropy of the one right token", kDrop},
      {"--full-validation", false, "an evaluation is --eval-iters batches", "--eval-iters N"},
      {"--tiktoken-num-special-tokens", true, "Megatron-LM's JSON file always has 1000 special tokens", kDrop},
      {"--tiktoken-special-tokens", true, "special tokens of Megatron-LM's JSON file keep Megatron-LM's names", kDrop},
      {"--vocab-extra-ids", true, "there is no masked language model", kDrop},
      {"--ckpt-convert-format", true, kOneFormat, kConvert},
      {"--ckpt-convert-save", true, kOneFormat, kConvert},
      {"--use-checkpoint-args", false, "a checkpoint does not set options",
       "give the options of the run that saved; those that do not fit are named"},
      {"--use-checkpoint-opt_param-scheduler", false, "schedules follow from the samples consumed", kDrop},
      {"--use-pytorch-profiler", false, "there is no Python here to profile", kTrace},
      {"--log-memory-to-tensorboard", false, "events have no memory", kDrop},
      {"--wandb-project", true, "nothing is sent over the network", kTensorboard},
      {"--wandb-exp-name", true, "nothing is sent over the network", kTensorboard},
      {"--wandb-save-dir", true, "nothing is sent over the network", kTensorboard},
      // Accepted.
      {"--use-mcore-models", false, kAlways},
      {"--transformer-impl", true, kCuda},
      {"--use-flash-attn", false, kCuda},
      {"--attention-backend", true, kCuda},
      {"--attention-softmax-in-fp32", false, kAlways},
      {"--apply-query-key-layer-scaling", false, "attention scores are f32, which do not overflow"},
      {"--no-masked-softmax-fusion", false, kCuda},
      {"--no-bias-gelu-fusion", false, kCuda},
      {"--no-bias-swiglu-fusion", false, kCuda},
      {"--no-bias-dropout-fusion", false, kCuda},
      {"--no-gradient-accumulation-fusion", false, kCuda},
      {"--no-rope-fusion", false, kCuda},
      {"--no-persist-layer-norm", false, kCuda},
      {"--cross-entropy-loss-fusion", false, kAlways},
      {"--no-async-tensor-model-parallel-allreduce", false,
       "gradients of inputs are always summed while those of weights are computed"},
      {"--tp-comm-overlap", false, kCuda},
      {"--fp8-amax-history-len", true, kFloat8},
      {"--fp8-amax-compute-algo", true, kFloat8},
      {"--fp8-param-gather", false, kFloat8},
      {"--empty-unused-memory-level", true, kCudaMemory},
      {"--record-memory-history", false, kCudaMemory},
      {"--use-cpu-initialization", false,
       "weights are always drawn on the CPU, so that they do not depend on the grid"},
      {"--data-parallel-random-init", false, "replicas always begin with the same weights"},
      {"--DDP-impl", true, "there is one implementation of data parallelism"},
      {"--accumulate-allreduce-grads-in-fp32", false, kF32Sums},
      {"--grad-reduce-in-bf16", false, kF32Sums},
      {"--overlap-param-gather", false, "--use-distributed-optimizer gives new weights at the end of its step"},
      {"--no-overlap-p2p-communication", false, kSends},
      {"--overlap-p2p-communication-warmup-flush", false, kAlways},
      {"--num-distributed-optimizer-instances", true, "the optimizer is divided over all data parallel ranks"},
      {"--ddp-bucket-size", true, kBuckets},
      {"--ddp-num-buckets", true, kBuckets},
      {"--no-align-grad-reduce", false, "stages average when their gradients are there, and wait for no other stage"},
      {"--ddp-pad-buckets-for-high-nccl-busbw", false, "nothing goes by NCCL"},
      {"--ddp-average-in-collective", false, kAlways},
      {"--scatter-gather-tensors-in-pipeline", false, "it is the default"},
      {"--recompute-modules", true, kScores},
      {"--recompute-activations", false, kScores},
      {"--create-attention-mask-in-dataloader", false, "attention masks are never made as tensors"},
      {"--no-create-attention-mask-in-dataloader", false, kAlways},
      {"--num-workers", true, "samples are read from mapped files, which takes microseconds"},
      {"--data-cache-path", true, kInSeconds},
      {"--num-dataset-builder-threads", true, kInSeconds},
      {"--data-impl", true, kMapped},
      {"--no-mmap-bin-files", false, kMapped},
      {"--legacy-tokenizer", false, kNever},
      {"--ckpt-format", true, kOneFormat},
      {"--ckpt-fully-parallel-save", false, kAlways},
      {"--no-ckpt-fully-parallel-save", false, "ranks always share the writing"},
      {"--ckpt-fully-parallel-load", false, "ranks always read what they need, and no more"},
      {"--dist-ckpt-optim-fully-reshardable", false, kAlways},
      {"--dist-ckpt-strictness", true, "a checkpoint that lacks something is always rejected"},
      {"--no-save-rng", false, kRandom},
      {"--no-load-rng", false, kRandom},
      {"--override-opt_param-scheduler", false, kAlways},
      {"--exit-signal-handler", false, "with --save a SIGTERM always means: save, then exit with code 75"},
      {"--manual-gc", false, kNoGarbage},
      {"--manual-gc-interval", true, kNoGarbage},
      {"--rerun-mode", true, kNever},
      {"--check-for-nan-in-loss-and-grad", false, kAlways},
      {"--no-check-for-nan-in-loss-and-grad", false,
       "a NaN always ends the run, with a message that names the parameter"},
      {"--log-straggler", false, "tutti run notices slow ranks, and tutti top shows them"},
      {"--log-progress", false, "tutti status shows how far the job is"},
      {"--profile", false, kNsys},
      {"--profile-step-start", true, kNsys},
      {"--profile-step-end", true, kNsys},
      {"--profile-ranks", true, kNsys},
      {"--tensorboard-queue-size", true, "each event is written at once"},
      {"--log-learning-rate-to-tensorboard", false, kAlways},
      {"--no-log-learnig-rate-to-tensorboard", false, kRates},  // so it is spelt there
      {"--no-log-learning-rate-to-tensorboard", false, kRates},
      {"--log-batch-size-to-tensorboard", false, kAlways},
      {"--log-loss-scale-to-tensorboard", false, "it is always on with --fp16"},
      {"--no-log-loss-scale-to-tensorboard", false, kRates},
      {"--log-validation-ppl-to-tensorboard", false, "the perplexity is e to the power of the loss, which is there"},
      {"--log-world-size-to-tensorboard", false, "the number of ranks does not change within a run"},
  };
  return options;
}

}  // namespace tutti::cli
