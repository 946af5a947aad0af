#pragma once
// Training and evaluating an image classifier on a world of ranks.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/group.h"
#include "tutti/data/fashion_mnist.h"
#include "tutti/parallel/data_parallel/options.h"
#include "tutti/parallel/optim/update_rule.h"
#include "tutti/training/trainer.h"

namespace tutti {

// Whether ranks split the optimizer's work (ShardedOptimizer). The weights are the same to the bit.
enum class Sharding {
  kAuto,  // kOn where all ranks are on the CPUs of one host, and nothing else that was asked for excludes it
  kOn,
  kOff,
};

// What halves the gradients on their way, or more.
enum class Compression { kNone, kBF16, kF16, kPowerSgd };

struct ImageTrainingOptions {
  std::string model = "cnn";
  std::string device = "cpu";  // rank_device()
  double dropout = 0;
  // Samples per rank (logical rank) and forward pass; what does not fill a batch at the end of an epoch is left out.
  std::size_t batch_size = 64;
  int accumulate = 1;  // forward and backward passes a step, whose gradients are averaged
  int epochs = 1;
  // Stop an epoch after this many steps, those before the checkpoint that it goes on from among them; 0: never.
  std::int64_t max_steps = 0;
  std::uint64_t seed = 0;  // of the weights, of the order of samples, and of dropout
  int loader_threads = 0;  // that make batches ahead; 0: the training thread makes them

  UpdateRule rule = SgdOptions{.lr = 0.05, .momentum = 0.9};
  double clip_grad_norm = 0;  // 0: not

  // Of it: overlap, gradient_as_bucket_view, logical_ranks (accumulate must be 1), autocast, finite_check
  // (in 16 bits always kReport).
  DataParallelOptions parallel;
  bool heap_tensors = true;  // large tensors are made where peers read them (ComputeOptions)
  Compression compression = Compression::kNone;
  Sharding sharding = Sharding::kAuto;
  int sharded_stage = 1;            // 2 makes Sharding::kAuto kOn
  std::int64_t check_replicas = 0;  // compare the weights over the ranks every so many steps; 0: never
  bool deterministic = false;       // as logical_ranks has it anyway

  double log_every = 1;  // seconds between lines of progress; negative: none
  CheckpointerOptions checkpoints;
  std::string save;  // a safetensors file for the weights; empty: none
  RecorderOptions record;
};

// Whether gradients are in f16 somewhere on their way: the loss is scaled then, and a step whose gradients overflow is
// left out.
bool scales_loss(const ImageTrainingOptions& options);

struct ImageTrainingResult {
  TrainingResult training;
  double exposed_percent = 0;  // communication that computing did not hide, of all steps, on this rank
  std::int64_t skipped = 0;    // steps whose gradients overflowed in f16: none unless scales_loss()
  // NaN: nothing was tested.
  double test_accuracy = std::numeric_limits<double>::quiet_NaN();
  double test_loss = std::numeric_limits<double>::quiet_NaN();
  DataParallelStats parallel;
};

// Every rank calls, with the same arguments. The weights are those of the seed on every rank, the order of samples is
// DistributedSampler's. Progress goes to standard error, of rank 0 only. With options.checkpoints a run that was
// interrupted goes on where it stood: with as many (logical) ranks to the same bits. Throws Exception.
ImageTrainingResult train_image_model(const Group& world, const ImageDataset& train, const ImageDataset& test,
                                      const ImageTrainingOptions& options);

}  // namespace tutti
