#pragma once
// Entrants in turn: every turn runs each once, one after another, beginning with another one each time, so that what
// else the machine does meets all of them alike.
#include <functional>
#include <string>
#include <vector>

#include "bench/comparison/entrants.h"
#include "bench/comparison/figures.h"

namespace tutti::bench {

// Says on standard error what runs, how far it is and when it will be over: one line that is written over on a
// terminal, else a line now and then.
class ProgressLine {
 public:
  explicit ProgressLine(int steps);
  ~ProgressLine();
  void begin(const std::string& words);  // a step
  void end();
  void clear() const;  // the line, before something else is written

 private:
  const int steps_;
  const bool terminal_;
  int done_ = 0;
  Clock::time_point start_ = now(), last_line_{};
};

// How many steps `run_turns` makes of it.
int steps_of(const std::vector<Entrant>& entrants, const Task& task, int turns);
// `words` names the task. A peer that fails is left out from then on, and standard error says so; if ours does, that is
// the error.
Result<Turns> run_turns(const std::vector<Entrant>& entrants, const Task& task, int turns, const std::string& words,
                        ProgressLine& progress);

}  // namespace tutti::bench
