#pragma once
// A look at what a GPT has learned: it goes on with a text.
#include <string>

#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/models/gpt/grid_groups.h"
#include "tutti/models/gpt/model.h"
#include "tutti/models/gpt/options.h"

namespace tutti::gpt {

// options.generate.prompt and what follows it, until the tokenizer's end of a document or so many tokens; the same on
// every rank of any grid. The model sees the last options.shape.sequence_length tokens. Nothing is kept from one token
// to the next, so this is slow. Every rank calls.
std::string generate(Model& model, const GridGroups& groups, const Options& options, const Tokenizer& tokenizer);

}  // namespace tutti::gpt
