#pragma once
// Do the tokens of all files belong to the vocabulary? Asked once at the start, so that a file of another tokenizer is
// told before anything is computed, not when the first sample of it that is too high is read.
#include "tutti/base/error.h"
#include "tutti/data/tokens/gpt_dataset.h"

namespace tutti {

// Looks through the files of the parts that are needed; where they are together more than 1 GiB, at an even part of
// each that comes to so much. (What is not looked at is found when its sample is read.) kInvalidArgument names file,
// token and sequence; else errors are those of TokenFile::open().
Status check_tokens(const GptDataOptions& options);

}  // namespace tutti
