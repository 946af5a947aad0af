#pragma once
// Pre-training of a GPT on the grid that the options say.
#include <cstdint>

#include "tutti/comm/group.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/models/gpt/options.h"
#include "tutti/training/trainer.h"

namespace tutti::gpt {

struct RunResult {
  TrainingResult training;
  std::int64_t consumed = 0;                  // samples, with those of the runs before
  double tokens_per_s = 0;                    // by the median step
  double utilisation = 0;                     // share of the machine's matrix rate; 0: not measured
  double validation_loss = 0, test_loss = 0;  // 0: not evaluated
};

// Every rank calls, with the same options, of for_world(). The last rank prints, as in Megatron-LM. `tokenizer` is for
// options.generate alone, and may be null. Throws Exception.
RunResult pretrain(const Group& world, const Options& options, const Tokenizer* tokenizer);

}  // namespace tutti::gpt
