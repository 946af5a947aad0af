#pragma once
// Text that a transformer continues.
//
//   std::string text = tutti::generate(model, tokenizer, {.prompt = "Once upon", .tokens = 64, .top_k = 20});
#include <optional>
#include <string>

#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/planning/schedules/schedule.h"

namespace tutti {

class Transformer;

struct GenerateOptions {
  std::optional<std::string> prompt;
  int tokens = 64;
  double temperature = 1;  // 0: always the likeliest
  int top_k = 0;           // among the likeliest so many; 0: all
};

// The prompt and what follows it, until the tokenizer's end of a document or so many tokens; the same on every rank of
// any grid. The model sees the last TransformerConfig::sequence_length tokens, and should be in eval() mode. Nothing is
// kept from one token to the next, so this is slow. Every rank calls. `kind`: how stages are placed over the pipeline.
std::string generate(Transformer& model, const Tokenizer& tokenizer, const GenerateOptions& options,
                     ScheduleKind kind = ScheduleKind::kOneForwardOneBackward);

}  // namespace tutti
