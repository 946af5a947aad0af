// Nobody reads any more (`| head` has its lines): the job ends as every member of a pipeline does, unless log files
// keep what it says. A disk that is full must not end a training that goes on well, but the exit code tells of it.
#include "tutti/launch/agent/consoles.h"

#include <cerrno>
#include <cstring>

#include "tutti/base/text.h"
#include "tutti/launch/output/log_lines.h"

namespace tutti {
namespace {

constexpr auto kStallLook = std::chrono::milliseconds(500);  // how often a console that takes nothing is looked at

constexpr std::string_view kPrefix = "[tutti] ";

}  // namespace

void Consoles::say(const std::string& text) {
  if (!json_) return errors_.write_line(kPrefix, sanitize(text));  // it may name what others have chosen
  errors_.write_line("", json_line({.line = text}, host_, 0, microseconds_since_epoch()));
}

void Consoles::say_block(const std::string& text) {
  if (!json_) return errors_.write_raw(text + "\n");
  for (const std::string& line : split(text, '\n')) say(line.starts_with(kPrefix) ? line.substr(kPrefix.size()) : line);
}

void Consoles::listen(PollSet& events) {
  for (Console* console : {&output_, &errors_}) {
    if (!console->wants_write()) continue;
    events.watch(console->fd(), POLLOUT, [] {});  // pump() follows every turn
    events.wake_after(kStallLook);
  }
}

void Consoles::pump() {
  output_.pump();
  errors_.pump();
}

bool Consoles::lost_reader(bool running) {
  bool must_end = false;
  for (Console* console : {&output_, &errors_}) {
    const int cause = console->take_error();
    if (cause == 0) continue;
    const std::string which = console == &output_ ? "standard output" : "standard error";
    if (cause != EPIPE) {
      output_lost_ = true;
      say("cannot write to " + which + ": " + std::strerror(cause) + "; the job goes on, what it says there is lost" +
          (log_dir_.empty() ? "" : " here, but not in " + log_dir_));
    } else if (!log_dir_.empty()) {
      say("nobody reads our " + which + " any more; the job goes on, its output is in " + log_dir_);
    } else if (!reader_gone_) {
      reader_gone_ = true;
      say("nobody reads our " + which + " any more" +
          (running ? ": ending the job (hint: with --log-dir it would go on)" : ""));
      must_end = running;
    }
  }
  return must_end;
}

}  // namespace tutti
