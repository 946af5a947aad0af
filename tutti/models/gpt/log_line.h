#pragma once
// What pretrain_gpt prints: the lines of Megatron-LM (megatron/training/training.py), field by field, so that what
// reads those reads these. Texts only.
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "tutti/models/gpt/options.h"
#include "tutti/trace/timers.h"

namespace tutti::gpt {

struct LogLine {
  std::int64_t step = 0, steps = 0, consumed = 0;
  double ms_per_step = 0;
  double learning_rate = 0;
  std::int64_t global_batch = 0;
  std::optional<double> loss;  // mean over the steps since the line before; none: all were left out
  double loss_scale = 1;
  std::optional<double> gradient_norm;   // none: the step was left out
  std::int64_t skipped = 0;              // steps that were left out, since the line before
  std::optional<std::int64_t> zeros;     // --log-num-zeros-in-grad
  std::optional<double> parameter_norm;  // --log-params-norm
  std::optional<double> teraflops;       // --log-throughput: of a rank, a second
  // Ours, after Megatron-LM's.
  std::optional<double> tokens_per_s;  // of all ranks
  std::optional<double> utilisation;   // of what the machine's matrix products reach, as a share
};
// " [2026-11-22 03:30:00] iteration       10/     100 | consumed samples:          160 | elapsed time ... |"
std::string to_string(const LogLine& line, std::time_t now);

// "validation loss at iteration 10 | lm loss value: 4.567890E+00 | lm loss PPL: 9.634095E+01 | ", between two lines of
// dashes. `where`: "iteration 10", "iteration 100 on test set".
std::string evaluation_text(const std::string& where, double loss);

// Timers over the ranks, readings[r] of rank r, by `steps`: a line for each, or with kAll one for each rank as well.
std::string timers_text(const std::vector<std::vector<TimerReading>>& readings, double steps, TimingOption option);

}  // namespace tutti::gpt
