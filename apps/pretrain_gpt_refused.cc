// What Megatron-LM has and pretrain_gpt does not: each with a reason, so that a script that is brought along says what
// to change. None is parsed and ignored.
#include "apps/pretrain_gpt_options.h"

namespace tutti::cli {
namespace {

constexpr const char* kLeaveOut = "leave it out";
constexpr const char* kCuda = "it chooses among CUDA kernels, and pretrain_gpt computes on CPUs";
constexpr const char* kExperts = "there are no mixtures of experts";
constexpr const char* kAlways = "it is always so here";
constexpr const char* kNever = "what it turns off is not here";

}  // namespace

const std::vector<RefusedOption>& refused_pretraining_options() {
  static const std::vector<RefusedOption> options = {
      {"--expert-model-parallel-size", true, kExperts, kLeaveOut},
      {"--expert-tensor-parallel-size", true, kExperts, kLeaveOut},
      {"--num-experts", true, kExperts, kLeaveOut},
      {"--moe-router-topk", true, kExperts, kLeaveOut},
      {"--use-mcore-models", false, kAlways, kLeaveOut},
      {"--transformer-impl", true, kCuda, kLeaveOut},
      {"--use-flash-attn", false, kCuda, kLeaveOut},
      {"--attention-backend", true, kCuda, kLeaveOut},
      {"--attention-softmax-in-fp32", false, kAlways, kLeaveOut},
      {"--apply-query-key-layer-scaling", false, "scores are f32, which do not overflow", kLeaveOut},
      {"--no-masked-softmax-fusion", false, kCuda, kLeaveOut},
      {"--no-bias-gelu-fusion", false, kCuda, kLeaveOut},
      {"--no-bias-swiglu-fusion", false, kCuda, kLeaveOut},
      {"--no-bias-dropout-fusion", false, kCuda, kLeaveOut},
      {"--no-gradient-accumulation-fusion", false, kCuda, kLeaveOut},
      {"--no-rope-fusion", false, kCuda, kLeaveOut},
      {"--no-persist-layer-norm", false, kCuda, kLeaveOut},
      {"--cross-entropy-loss-fusion", false, kAlways, kLeaveOut},
      {"--tp-comm-overlap", false, kCuda, kLeaveOut},
      {"--fp8-format", true, "there is no f8 arithmetic on CPUs", "--bf16"},
      {"--use-cpu-initialization", false, "weights are always drawn on the CPU, so that they do not depend on the grid",
       kLeaveOut},
      {"--data-parallel-random-init", false, "replicas always begin with the same weights", kLeaveOut},
      {"--accumulate-allreduce-grads-in-fp32", false, "gradients are always added and averaged in f32", kLeaveOut},
      {"--grad-reduce-in-bf16", false, "gradients are always added and averaged in f32", kLeaveOut},
      {"--overlap-param-gather", false, "--use-distributed-optimizer gives new weights at the end of its step",
       kLeaveOut},
      {"--no-overlap-p2p-communication", false, "sends are never waited for, and receives are posted ahead", kLeaveOut},
      {"--overlap-p2p-communication-warmup-flush", false, kAlways, kLeaveOut},
      {"--num-distributed-optimizer-instances", true, "the optimizer is divided over all data parallel ranks",
       kLeaveOut},
      {"--ddp-bucket-size", true, "buckets are 25 MiB, in the order in which gradients come", kLeaveOut},
      {"--ddp-num-buckets", true, "buckets are 25 MiB, in the order in which gradients come", kLeaveOut},
      {"--ddp-average-in-collective", false, kAlways, kLeaveOut},
      {"--pipeline-model-parallel-layout", true, "stages are given by the layers of the first and of the last one",
       "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers"},
      {"--distribute-saved-activations", false, "--sequence-parallel divides what is kept", "--sequence-parallel"},
      {"--recompute-modules", true, "scores of attention are never kept, but always computed again in backward",
       kLeaveOut},
      {"--recompute-activations", false, "scores of attention are never kept, but always computed again in backward",
       kLeaveOut},
      {"--calculate-per-token-loss", false, "a step is the mean of its microbatches", kLeaveOut},
      {"--add-qkv-bias", false, "all linear layers have a bias, or with --disable-bias-linear none has", kLeaveOut},
      {"--create-attention-mask-in-dataloader", false, kNever, kLeaveOut},
      {"--no-create-attention-mask-in-dataloader", false, kAlways, kLeaveOut},
      {"--num-workers", true, "samples are read from mapped files, which takes microseconds", kLeaveOut},
      {"--data-cache-path", true, "the indices of samples are made in seconds, and kept in no file", kLeaveOut},
      {"--full-validation", false, "an evaluation is --eval-iters batches", "--eval-iters N"},
      {"--vocab-extra-ids", true, "there is no masked language model", kLeaveOut},
      {"--legacy-tokenizer", false, kNever, kLeaveOut},
      {"--ckpt-format", true, "there is one format, which fits every grid",
       "leave it out; tutti ckpt import reads files of PyTorch"},
      {"--ckpt-fully-parallel-save", false, kAlways, kLeaveOut},
      {"--no-ckpt-fully-parallel-save", false, "ranks always share the writing", kLeaveOut},
      {"--ckpt-fully-parallel-load", false, "ranks always read what they need, and no more", kLeaveOut},
      {"--dist-ckpt-optim-fully-reshardable", false, kAlways, kLeaveOut},
      {"--dist-ckpt-strictness", true, "a checkpoint that lacks something is refused", kLeaveOut},
      {"--ckpt-convert-format", true, "there is one format", "tutti ckpt import, tutti ckpt reshard"},
      {"--no-save-rng", false, "random numbers hang on step, sample and layer, so there is no state to save",
       kLeaveOut},
      {"--no-load-rng", false, "random numbers hang on step, sample and layer, so there is no state to load",
       kLeaveOut},
      {"--use-checkpoint-args", false, "give the options of the run that saved; what does not fit is told", kLeaveOut},
      {"--use-checkpoint-opt_param-scheduler", false, "schedules follow from the samples consumed", kLeaveOut},
      {"--override-opt_param-scheduler", false, kAlways, kLeaveOut},
      {"--exit-signal-handler", false, "with --save a SIGTERM always means: save, then leave with exit code 75",
       kLeaveOut},
      {"--manual-gc", false, "there is no garbage collector", kLeaveOut},
      {"--rerun-mode", true, kNever, kLeaveOut},
      {"--check-for-nan-in-loss-and-grad", false, kAlways, kLeaveOut},
      {"--no-check-for-nan-in-loss-and-grad", false, "a NaN always ends the run, and is told with the parameter's name",
       kLeaveOut},
      {"--log-straggler", false, "tutti run notices ranks that are slow", "tutti top shows them"},
      {"--log-progress", false, kNever, "tutti status shows how far the job is"},
      {"--profile", false, "it belongs to nsys", "--trace FILE.json"},
      {"--use-pytorch-profiler", false, kNever, "--trace FILE.json"},
      {"--profile-ranks", true, "--trace has all ranks", "--trace FILE.json"},
      {"--record-memory-history", false, "it belongs to CUDA's allocator", kLeaveOut},
      {"--wandb-project", true, "nothing is sent over the network", "--tensorboard-dir DIR"},
      {"--wandb-exp-name", true, "nothing is sent over the network", "--tensorboard-dir DIR"},
      {"--wandb-save-dir", true, "nothing is sent over the network", "--tensorboard-dir DIR"},
  };
  return options;
}

}  // namespace tutti::cli
