#pragma once
// The frame of a training program: its main() is a table of options and a function that trains.
//
//   int main(int argc, char** argv) {
//     Command command;
//     return cli::run_training_program(argc, argv, {"train_x", "Trains x.", kFooter}, train_x_options(command),
//                                      [&](const cli::OptionParser&) { return train(command); });
//   }
#include <functional>

#include "apps/options/option_parser.h"

namespace tutti::cli {

// Parses the command line, and runs `train`. Returns the exit code: 0 after --help; 2 after wrong usage, for a missing
// file and for ranks that differ; 1 for every other error that `train` throws, which is reported; else what `train`
// returns. Rank 0 warns of options that have no effect.
// A program that `tutti run` did not start is executed once more, with the recommended_settings() that the user has not
// set: libraries read these variables when they are loaded.
// --local-rank=N, which torch.distributed.launch passes, must equal LOCAL_RANK if that is set, and becomes LOCAL_RANK.
int run_training_program(int argc, char** argv, const ProgramHelp& help, OptionTable table,
                         const std::function<int(const OptionParser& line)>& train);

}  // namespace tutti::cli
