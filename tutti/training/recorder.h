#pragma once
// What a training run leaves for people to look at: traces, the profile table, TensorBoard's files.
#include <memory>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/trace/event_file.h"
#include "tutti/training/step_times.h"

namespace tutti {

struct RecorderOptions {
  std::string trace;        // a file of all ranks (.json), or a folder with a file of each; empty: none
  bool profile = false;     // a table of what took how long, of rank 0, and each phase over all ranks
  std::string tensorboard;  // a folder; empty: none
};

// What trace is: "a file", "a folder" or "none". Ranks must agree in it.
const char* trace_kind(const RecorderOptions& options);

// Every rank makes one and calls its functions alike.
class Recorder {
 public:
  // Throws Exception where a folder cannot be made: better before an hour of training than after it.
  Recorder(const Group& world, RecorderOptions options);

  void step(std::int64_t step, const StepTimes& times);
  void test(std::int64_t step, double accuracy, double loss);
  // At the end: writes the traces and prints the table. Throws Exception.
  void finish();

 private:
  const Group& world_;
  RecorderOptions options_;
  std::unique_ptr<EventFile> events_;  // on rank 0
  PhaseTotals phases_;
};

}  // namespace tutti
