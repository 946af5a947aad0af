#pragma once
// Whether a run and the checkpoint that it resumes from were started alike. (Ranks: agree_on() in comm/agree.h.)
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"

namespace tutti {

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
