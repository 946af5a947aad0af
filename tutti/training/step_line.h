#pragma once
// The line that a trainer shows while it works, about once a second:
//   step 120/468  loss 0.5123  lr 0.05  2350 samples/s  data 1.2%  comm 3.4%  ETA 12 s
// On a terminal it is rewritten in place, elsewhere (files, pipes, tutti run) it is a plain line.
#include <cstdint>
#include <cstdio>
#include <string>

#include "tutti/base/clock.h"

namespace tutti {

struct StepRecord {
  double loss = 0;
  double lr = 0;
  double samples = 0;          // of all ranks, in this step
  double seconds = 0;          // the whole step
  double data_seconds = 0;     // of it: waiting for the batch
  double exposed_seconds = 0;  // of it: waiting for communication
};

// The line about the steps since the previous one; rates and shares are over all of them, loss and lr are the last
// one's.
std::string step_line_text(std::int64_t step, std::int64_t steps, const StepRecord& since, int count);

class StepLine {
 public:
  // `steps`: of the whole run, of which `done` lie behind it. `every`: seconds between lines; 0: every step; negative:
  // never.
  StepLine(std::FILE* out, std::int64_t steps, double every, std::int64_t done = 0);
  ~StepLine() { finish(); }
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;
  void record(const StepRecord& step);
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
  StepRecord since_;  // sums, since the last line
  int count_ = 0;
};

}  // namespace tutti
