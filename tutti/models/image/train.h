#pragma once
// Training and evaluating an image classifier on a world of ranks.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/data/fashion_mnist.h"
#include "tutti/parallel/ddp/reducer.h"

namespace tutti {

// Whether ranks split the optimizer's work: a ShardedOptimizer or an Optimizer. The weights are the same to the bit.
enum class Sharding {
  kAuto,  // kOn where all ranks are on one host
  kOn,
  kOff,
};

struct ImageTrainingOptions {
  std::string model = "cnn";
  // Samples per rank and step; what does not fill a batch at the end of an epoch is left out.
  std::size_t batch_size = 64;
  int epochs = 1;
  std::int64_t max_steps = 0;  // stop an epoch after this many steps; 0: never
  double lr = 0.05;
  double momentum = 0.9;
  std::uint64_t seed = 0;
  double log_every = 1;  // seconds between lines of progress; negative: none
  std::string save;      // a safetensors file for the weights; empty: none
  DataParallelOptions parallel;
  Sharding sharding = Sharding::kAuto;
};

struct ImageTrainingResult {
  std::int64_t steps = 0;      // timed: all but the first three of each epoch, of a shorter one its last
  double seconds = 0;          // of them
  double samples_per_s = 0;    // all ranks
  double exposed_percent = 0;  // communication that computing did not hide, of all steps
  double test_accuracy = 0;
  double test_loss = 0;
};

// Every rank calls, with the same arguments. The weights are those of the seed on every rank, the order of samples is
// DistributedSampler's. Progress goes to standard error, of rank 0 only. Throws Exception.
ImageTrainingResult train_image_model(const Group& world, const ImageDataset& train, const ImageDataset& test,
                                      const ImageTrainingOptions& options);

}  // namespace tutti
