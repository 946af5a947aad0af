#pragma once
// What a training run writes beside its checkpoints: traces, the profile table, TensorBoard files.
#include <functional>
#include <memory>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/trace/event_file.h"
#include "tutti/training/training_step.h"

namespace tutti {

struct Trace;

struct RecorderOptions {
  std::string trace;        // a file of all ranks (.json), or a folder with a file of each rank; empty: none
  bool profile = false;     // a table of what took how long on rank 0, and each phase over all ranks
  std::string tensorboard;  // a folder; empty: none
  int tensorboard_rank = 0;
  bool step_scalars = true;  // of each step: train/loss, train/lr, train/samples_per_s, and time/ for each phase
  std::string tensorboard_option = "--tensorboard";  // the name of the option, for errors
  // Collective. Writes the trace in place of what `trace` and `profile` say.
  std::function<void(const Trace&)> write_trace;
};

// Every rank makes one and calls its functions alike.
class Recorder {
 public:
  // Throws Exception where a folder cannot be made: better before an hour of training than after it.
  Recorder(const Group& world, RecorderOptions options);

  void step(std::int64_t step, const TrainingStep& made);
  void add(std::int64_t step, const Scalars& scalars);
  // At the end: writes the traces and prints the table. Throws Exception.
  void finish();

 private:
  bool traces() const { return !options_.trace.empty() || options_.profile || options_.write_trace; }

  const Group& world_;
  RecorderOptions options_;
  std::unique_ptr<EventFile> events_;  // on tensorboard_rank
  PhaseTotals phases_;
};

}  // namespace tutti
