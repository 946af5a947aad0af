#include "apps/tutti/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr double kSecondsOnTerminal = 0.1, kSecondsElsewhere = 10;

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& doing, double share, const std::string& more) {
  if (doing != doing_) {
    doing_ = doing;
    begin_ = now();
    begin_share_ = share;
  }
  if (seconds_since(last_) < (terminal_ ? kSecondsOnTerminal : kSecondsElsewhere)) return;
  last_ = now();
  const double gained = share - begin_share_;
  const std::string left = gained > 0 ? ", ETA " + seconds_text(seconds_since(begin_) / gained * (1 - share)) : "";
  const std::string line = fmt::format("{}: {:.0f} %{}{}", doing, 100 * share, more, left);
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", line.c_str());
  written_ = true;
}

void Progress::clear() {
  if (terminal_ && written_) fmt::print(stderr, "\r\x1b[K");
  written_ = false;
}

}  // namespace tutti::cli
