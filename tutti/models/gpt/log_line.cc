#include "tutti/models/gpt/log_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::gpt {

std::string to_string(const LogLine& line, std::time_t now) {
  std::tm local{};
  localtime_r(&now, &local);
  char clock[32];
  std::strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", &local);
  std::string text = fmt::format(" [{}] iteration {:8d}/{:8d} | consumed samples: {:12d} |", clock, line.step,
                                 line.steps, line.consumed);
  text += fmt::format(" elapsed time per iteration (ms): {:.1f} |", line.ms_per_step);
  if (line.teraflops) text += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.4f} |", *line.teraflops);
  text += fmt::format(" learning rate: {:.6E} | global batch size: {:5d} |", line.learning_rate, line.global_batch);
  if (line.loss) text += fmt::format(" lm loss: {:.6E} |", *line.loss);
  text += fmt::format(" loss scale: {:.1f} |", line.loss_scale);
  if (line.gradient_norm) text += fmt::format(" grad norm: {:.3f} |", *line.gradient_norm);
  if (line.zeros) text += fmt::format(" num zeros: {} |", *line.zeros);
  if (line.parameter_norm) text += fmt::format(" params norm: {:.3f} |", *line.parameter_norm);
  text += fmt::format(" number of skipped iterations: {:3d} | number of nan iterations: {:3d} |", line.skipped, 0);
  if (line.tokens_per_s) text += fmt::format(" tokens per second: {:.1f} |", *line.tokens_per_s);
  if (line.utilisation) text += fmt::format(" model FLOP utilisation: {:.1f} % |", 100 * *line.utilisation);
  return text;
}

std::string evaluation_text(const std::string& where, double loss) {
  const std::string line = fmt::format(" validation loss at {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ", where,
                                       loss, std::exp(std::min(20.0, loss)));
  const std::string dashes(line.size() + 1, '-');
  return dashes + "\n" + line + "\n" + dashes;
}

std::string timers_text(const std::vector<std::vector<TimerReading>>& readings, double steps, TimingOption option) {
  auto spreads = spread(readings);
  for (TimerSpread& timer : spreads) {
    timer.least /= steps;
    timer.most /= steps;
  }
  std::string text;
  switch (option) {
    case TimingOption::kMinMax:
      return spread_text(spreads);
    case TimingOption::kMax:
      text = "max time across ranks (ms):\n";
      for (const TimerSpread& timer : spreads)
        text += fmt::format("    {:.<48}: {:.2f}\n", timer.name + " ", 1e3 * timer.most);
      return text;
    case TimingOption::kAll:
      break;
  }
  text = "times across ranks (ms):\n";
  for (const TimerSpread& timer : spreads) {
    text += fmt::format("  {}:\n", timer.name);
    for (std::size_t rank = 0; rank < readings.size(); ++rank)
      for (const TimerReading& reading : readings[rank])
        if (reading.name == timer.name)
          text += fmt::format("     rank {:2d}: {:.2f}\n", rank, 1e3 * reading.seconds / steps);
  }
  return text;
}

}  // namespace tutti::gpt
