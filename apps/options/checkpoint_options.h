#pragma once
// The options about checkpoints, which are the same in all training programs.
#include "apps/options/option.h"
#include "tutti/checkpoint/checkpointer.h"

namespace tutti::cli {

// The group "Checkpoints", which sets `target`.
OptionGroup checkpoint_options(CheckpointerOptions& target);

// Adds another program's name of an option of `group`.
void also_called(OptionGroup& group, std::string_view name, const char* alias);

}  // namespace tutti::cli
