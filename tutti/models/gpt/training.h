#pragma once
// Pre-training of a GPT on the grid that the options say.
#include <cstdint>

#include "tutti/comm/group.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/models/gpt/options.h"

namespace tutti::gpt {

struct RunResult {
  std::int64_t step = 0, consumed = 0;        // in all, with those of the runs before
  std::int64_t steps = 0;                     // of this run
  double seconds = 0;                         // of them
  double median_seconds = 0;                  // of a step, but for the first three, or the last of fewer
  double tokens_per_s = 0;                    // by that median
  double utilisation = 0;                     // share of the machine's matrix rate; 0: not measured
  double last_loss = 0;                       // mean over the samples of the last step
  double validation_loss = 0, test_loss = 0;  // 0: not evaluated
  bool stopped = false;                       // the job was told to, and all was saved: leave with kLeftEarly
};

// Every rank calls, with the same options, of for_world(). The last rank prints, as in Megatron-LM. `tokenizer` is for
// options.generate alone, and may be null. Throws Exception.
RunResult pretrain(const Group& world, const Options& options, const Tokenizer* tokenizer);

}  // namespace tutti::gpt
