#pragma once
// Whether ranks, or a run and the checkpoint that it resumes from, were started alike. Replicas that learn at different
// rates drift apart without an error.
#include <string>
#include <utility>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/comm/group.h"

namespace tutti {

// Every rank calls, with the same names in the same order. kMismatch on every rank where a value is not that of rank 0,
// naming the first option that differs, the ranks and both values. Blocks like a collective.
Status check_same_options(const Group& world, const std::vector<std::pair<std::string, std::string>>& options);

// A value that a run has in common with the run that saved its checkpoint.
struct RunValue {
  std::string name;    // in the checkpoint
  std::string option;  // in the sentence: "--seed"
  CheckpointValue given;
  std::vector<const char*> kinds = {};  // if the value is the number of a kind: their names
  bool may_lack = false;                // checkpoints of other programs may not have it
};
// kMismatch for the first value that is not as in `there`, a part of saved.facts(): "the checkpoint C is of another
// run: it was saved with --seed 1, and 2 is given".
Status check_same_run(const CheckpointReader& saved, const CheckpointValues& there,
                      const std::vector<RunValue>& values);

}  // namespace tutti
