#pragma once
// The line that a trainer shows while it works, about once a second:
//   step 120/468  loss 0.5123  lr 0.05  2350 samples/s  data 1.2%  comm 3.4%  ETA 12 s
// On a terminal it is rewritten in place, elsewhere (files, pipes, tutti run) it is a plain line.
#include <cstdint>
#include <cstdio>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/training/training_step.h"

namespace tutti {

// `since`: the `count` steps since the line before, added up; loss and lr are those of the last step. A loss that is
// not known is not in the line.
std::string step_line_text(std::int64_t step, std::int64_t steps, const TrainingStep& since, int count);

class StepLine {
 public:
  // `steps`: of the whole run, of which `done` lie behind it. `every`: seconds between lines; 0: every step; negative:
  // never.
  StepLine(std::FILE* out, std::int64_t steps, double every, std::int64_t done = 0);
  ~StepLine() { finish(); }
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;
  void record(const TrainingStep& step);
  // Shows the steps that no line has shown yet, and ends a line that is being rewritten.
  void finish();

 private:
  void show();

  std::FILE* out_;
  std::int64_t steps_, done_;
  double every_;
  bool terminal_;
  bool open_line_ = false;
  Clock::time_point shown_ = now();
  TrainingStep since_;  // sums, since the last line
  int count_ = 0;
};

}  // namespace tutti
