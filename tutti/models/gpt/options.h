#pragma once
// The options of a GPT's pre-training. apps/options/pretrain_gpt_options.h makes them from a command line. No LibTorch
// here.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/checkpoint/checkpointer.h"
#include "tutti/data/batch_sampler.h"
#include "tutti/data/tokens/gpt_dataset.h"
#include "tutti/models/transformer/generate.h"
#include "tutti/parallel/gradients/loss_scale.h"
#include "tutti/parallel/recompute.h"
#include "tutti/planning/grid.h"
#include "tutti/planning/schedules/schedule.h"
#include "tutti/planning/stage_layers.h"
#include "tutti/planning/transformer_config.h"
#include "tutti/training/batch_schedule.h"
#include "tutti/training/parameter_schedule.h"

namespace tutti::gpt {

enum class TimingOption { kMax, kMinMax, kAll };

struct ParallelOptions {
  GridOptions grid;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;            // stages of a rank
  int microbatch_group = 0;  // PipelineShape::microbatch_group
  EndLayers end_layers;
  bool sequence_parallel = false;
  // Between hosts each tensor rank sends its part of what goes to the next stage (MessageOptions::split_over).
  bool split_messages = true;
  bool shard_optimizer = false;
  bool overlap_gradients = false;
  bool fully_shard = false;  // weights, gradients and optimizer state over the averaging ranks
  RecomputeOptions recompute;
};

// In steps, or in samples; both 0: not given.
struct Length {
  std::int64_t steps = 0, samples = 0;
};

struct OptimizerOptions {
  bool adam = true;  // AdamW; else SGD
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, momentum = 0.9;
  Length warm_up, decay, anneal;           // what of learning_rate for_world() fills in
  std::optional<double> warm_up_fraction;  // of the decay
  LearningRateOptions learning_rate;
  WeightDecayOptions weight_decay;  // of matrices; vectors have none
  double clip_grad = 1;             // 0: not
  // With Precision::kF16; of the others a fixed one alone, or none.
  std::optional<LossScaleOptions> loss_scale;
};

struct EvaluationOptions {
  std::int64_t iterations = 100;  // batches
  std::int64_t interval = 0;      // steps; 0: only at the end
};

struct ReportOptions {
  std::int64_t log_interval = 100;
  bool throughput = false, parameter_norm = false, zero_gradients = false;
  int timing_level = 0;
  TimingOption timing = TimingOption::kMinMax;
  std::string tensorboard;  // a folder; empty: none
  std::int64_t tensorboard_interval = 1;
  bool timers_to_tensorboard = false;
  std::string trace;  // as RecorderOptions has it
  bool json = false;
};

struct Options {
  TransformerConfig model;  // its seed is also that of the data
  bool deterministic = false;
  std::string device = "cpu";  // rank_device()

  ParallelOptions parallel;
  BatchScheduleOptions batches;    // of them for_world() fills in `replicas`, and global_batch where it is 0
  std::int64_t train_samples = 0;  // given, or what for_world() makes of the steps
  std::int64_t train_steps = 0;    // given, or 0
  bool skip_train = false;
  EvaluationOptions evaluation;
  OptimizerOptions optimizer;

  GptDataOptions data;  // `samples` is filled in by the training
  SampleOrder order = SampleOrder::kSequential;
  std::optional<std::int64_t> masked_token;  // the end of a document, where its loss does not count
  // The end of a document, behind which positions begin anew (reset_positions) and nothing before is seen.
  std::optional<std::int64_t> end_of_document;
  bool reset_positions = false, reset_attention = false;

  CheckpointerOptions checkpoints;
  std::string load;            // where to begin; empty: at --save, if there is something, else anew
  bool must_load = false;      // there has to be something at `load`
  bool weights_only = false;   // --finetune: the weights of `load`, from step 0
  bool load_optimizer = true;  // else its state begins anew
  bool save_optimizer = true;

  std::int64_t exit_interval = 0;  // leave at a step that is a multiple of it; 0: not
  double exit_after_seconds = 0;   // or after this time; 0: not
  ReportOptions report;
  GenerateOptions generate;
};

// The options as `world` ranks have them: the batch, the length of the training and of its schedules in samples.
// kInvalidArgument or kUsage, in one sentence with what would fit: a grid that does not divide, heads, layers or a
// sequence that it does not, a batch that the replicas do not, microbatches that the schedule cannot take, options that
// exclude one another. Nothing is allocated.
Result<Options> for_world(Options options, int world);
// Layers [begin, end) of each stage, in the order of the stages.
std::vector<LayerRange> stages_of(const Options& options);
// Those of a rank of the pipeline, by chunk.
std::vector<StageLayers> stages_of_rank(const Options& options, int pipeline_rank);
// Whole steps that can be made with the samples from `consumed` to options.train_samples.
std::int64_t steps_left(const Options& options, std::int64_t consumed);
// The pipeline of a step with so many microbatches, or of an evaluation.
Schedule pipeline_schedule(const Options& options, int microbatches, bool forward_only);

}  // namespace tutti::gpt
