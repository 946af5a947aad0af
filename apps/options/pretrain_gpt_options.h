#pragma once
// The options of pretrain_gpt: those of Megatron-LM that mean something here, and Tutti's. Without LibTorch.
#include <memory>
#include <string>
#include <vector>

#include "apps/options/option.h"
#include "tutti/base/clock.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/models/gpt/auto_parallel.h"
#include "tutti/models/gpt/options.h"

namespace tutti::cli {

struct PretrainGptCommand {
  gpt::Options options;
  bool chooses_parallel = false;  // --parallel auto, which keeps the parts that are given
  gpt::GivenParts given_parts;
  std::string cluster;                   // for it, as find_cluster() takes it; empty: measured
  std::unique_ptr<Tokenizer> tokenizer;  // null: --vocab-size alone is given
  std::string backend;                   // tutti, gloo or mpi
  Duration collective_timeout{};
};

// The table sets `command`; it reads the tokenizer's files. gpt::for_world() checks what depends on the number of
// ranks.
OptionTable pretrain_gpt_options(PretrainGptCommand& command);

// For the table: the options of Megatron-LM that pretrain_gpt does not have, and the checks of options together.
const std::vector<ForeignOption>& options_of_megatron();
std::vector<std::function<Status(const OptionTexts&)>> pretrain_gpt_checks(PretrainGptCommand& command);

}  // namespace tutti::cli
