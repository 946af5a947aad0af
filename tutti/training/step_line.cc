#include "tutti/training/step_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tutti/base/text.h"

namespace tutti {

std::string step_line_text(std::int64_t step, std::int64_t steps, const TrainingStep& since, int count) {
  const double seconds = since.seconds > 0 ? since.seconds : 1e-9;
  const double left = double(steps - step) * seconds / (count > 0 ? count : 1);
  const std::string loss = since.loss ? fmt::format("  loss {:.4f}", *since.loss) : "";
  return fmt::format("step {:>{}}/{}{}  lr {:g}  {:.0f} samples/s  data {:.1f}%  comm {:.1f}%  ETA {}", step,
                     fmt::formatted_size("{}", steps), steps, loss, since.lr, since.samples / seconds,
                     100 * since.data / seconds, 100 * since.exposed / seconds, seconds_text(left));
}

StepLine::StepLine(std::FILE* out, std::int64_t steps, double every, std::int64_t done)
    : out_(out), steps_(steps), done_(done), every_(every), terminal_(::isatty(::fileno(out)) == 1) {}

void StepLine::record(const TrainingStep& step) {
  ++done_;
  ++count_;
  since_.loss = step.loss;
  since_.lr = step.lr;
  since_.samples += step.samples;
  since_.seconds += step.seconds;
  since_.data += step.data;
  since_.exposed += step.exposed;
  if (every_ >= 0 && seconds_since(shown_) >= every_) show();
}

void StepLine::show() {
  const auto text = step_line_text(done_, steps_, since_, count_);
  if (terminal_) {
    fmt::print(out_, "\r\x1b[K{}", text);
  } else {
    fmt::print(out_, "{}\n", text);
  }
  std::fflush(out_);
  open_line_ = terminal_;
  shown_ = now();
  since_ = {};
  count_ = 0;
}

void StepLine::finish() {
  if (every_ >= 0 && count_ > 0) show();
  if (open_line_) fmt::print(out_, "\n");
  open_line_ = false;
}

}  // namespace tutti
