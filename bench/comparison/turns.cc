#include "bench/comparison/turns.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

constexpr double kSecondsBetweenLines = 10;

}  // namespace

ProgressLine::ProgressLine(int steps) : steps_(steps), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() const {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::begin(const std::string& words) {
  const double passed = seconds_since(start_);
  const std::string left = done_ == 0 ? "" : ", ETA " + seconds_text(passed / done_ * (steps_ - done_));
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{} of {}: {}{}", done_ + 1, steps_, words, left);
  } else if (seconds_since(last_line_) > kSecondsBetweenLines) {
    fmt::print(stderr, "{} of {}: {}{}\n", done_ + 1, steps_, words, left);
    last_line_ = now();
  }
}

void ProgressLine::end() { ++done_; }

int steps_of(const std::vector<Entrant>& entrants, const Task& task, int turns) {
  int taking_part = 0;
  for (const Entrant& entrant : entrants) taking_part += !entrant.part(task).empty();
  return taking_part * turns;
}

Result<Turns> run_turns(const std::vector<Entrant>& entrants, const Task& task, int turns, const std::string& words,
                        ProgressLine& progress) {
  Turns all;
  std::set<std::string> left_out;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const Entrant& entrant = entrants[(i + std::size_t(turn)) % entrants.size()];
      const auto part = entrant.part(task);
      if (part.empty()) continue;
      if (left_out.contains(entrant.key)) {
        progress.end();
        continue;
      }
      progress.begin(fmt::format("{}, turn {} of {}: {}", words, turn + 1, turns, entrant.name));
      auto figures = entrant.run(task, part);
      progress.end();
      if (figures.ok()) {
        all.add(entrant.key, std::move(*figures));
        continue;
      }
      Error error = figures.error();
      error.detail = entrant.name + " could not be measured (" + words + "): " + error.detail;
      if (entrant.key == kOurs) return error;
      progress.clear();
      fmt::print(stderr, "tutti bench: {}; it is left out\n", error.detail);
      left_out.insert(entrant.key);
    }
  }
  return all;
}

}  // namespace tutti::bench
