#pragma once
// What the program that trains does, as far as time and memory depend on it. The planner needs no other knowledge of a
// program, so runs of other systems can be predicted and compared too.
#include <string>

#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

// Bytes of each parameter.
struct ParameterBytes {
  double weights = 4, gradients = 4, optimizer = 8;
  double sum() const { return weights + gradients + optimizer; }
};

struct TrainingRuntime {
  std::string name;
  double element = 4;        // bytes of what linear layers take and give
  double residual = 4;       // bytes of what is added up between layers
  double logit = 4;          // bytes of an output of the head that are kept for backward
  double logit_at_work = 4;  // and those that the loss and its gradient need at once
  double reserved = 0;       // bytes of the process on each device, whatever the model
  double buckets = 0;        // bytes of gradients that are on their way at once, where backward hides their averages
  // With context parallelism: pairs of keys and values, or of their gradients, that a rank sends or receives at once.
  double passing_pairs = 0;
  ParameterBytes parameters;
  double sent_gradient = 4;       // bytes of a gradient that is averaged
  double optimizer_traffic = 36;  // bytes that an update reads and writes, for each parameter
  // Attention: whether a matrix of scores is written and kept, and whether what the causal mask hides is skipped.
  bool keeps_scores = false, skips_masked = true;
  bool keeps_masks = false;         // dropout's masks, one byte a number
  bool blocks_in_messages = false;  // a pipeline rank does nothing else while it sends or receives
  bool splits_messages = true;      // each tensor rank sends its part; the receivers gather them
  bool hides_tensor_sums = true;    // sums of input gradients pass while gradients of weights are computed
  bool interleaves_evenly = false;  // interleaved schedules need a multiple of `pipeline` microbatches
  bool gives_end_layers = false;    // the first and the last stage may have other numbers of layers
  double gather_share = 1;          // of the bandwidth, reached by gathers of sharded weights
  // With sharded weights: layers whose weights a rank has whole at once, and whose gradients.
  int whole_weights = 2, whole_gradients = 1;

  // Empty if the program can run such a plan; else why not.
  std::string refusal(const ParallelPlan& plan) const;
};

// pretrain_gpt of Tutti.
TrainingRuntime tutti_runtime(Precision precision);
// Megatron-LM of 2021 and 2022, in 16 bits: the runs of arXiv:2104.04473 and arXiv:2205.05198.
TrainingRuntime megatron_runtime();
// Megatron-Core and programs like it since 2023, in 16 bits: FlashAttention, no dropout, messages beside computations.
// Of MLPerf training v3.1 these are settings of NVIDIA's GPT-3 (mlcommons/training_results_v3.1,
// NVIDIA/benchmarks/gpt3/implementations/pytorch/conf/custom.yaml: transformer_engine, hidden_dropout and
// attention_dropout 0, overlap_p2p_comm). Llama 3 405B was trained on 8,192 tokens without recomputation
// (arXiv:2407.21783, section 3.3), which only attention without stored scores allows.
TrainingRuntime megatron_core_runtime();
// DeepSpeed of 2021, in 16 bits: the ZeRO-3 runs of arXiv:2104.04473; with Megatron's layers, those of vTrain (Bang et
// al. 2024, arXiv:2312.12391).
TrainingRuntime deepspeed_runtime();
// By name: "tutti", "megatron", "megatron-core", "deepspeed".
Result<TrainingRuntime> training_runtime(std::string_view name, Precision precision);

}  // namespace tutti
