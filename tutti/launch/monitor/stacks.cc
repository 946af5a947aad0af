#include "tutti/launch/monitor/stacks.h"

#include <algorithm>
#include <csignal>

#include "tutti/base/text.h"
#include "tutti/launch/monitor/backtrace.h"

namespace tutti {
namespace {

constexpr std::size_t kAtOnce = 2;  // debuggers that run at the same time
constexpr auto kLook = std::chrono::milliseconds(500);
constexpr auto kStacksTurn = std::chrono::milliseconds(50);

std::unique_ptr<Tool> debugger_of(pid_t pid, Deadline deadline) {
  const std::string number = std::to_string(pid);
  auto tool = Tool::start("eu-stack", {"-p", number, "-n", "48"}, deadline);
  if (!tool) {
    tool = Tool::start("gdb",
                       {"-p", number, "-batch", "-nx", "-iex", "set auto-load off", "-iex",
                        "set debuginfod enabled off", "-ex", "set width 0", "-ex", "thread apply all bt 48"},
                       deadline);
  }
  return tool ? std::make_unique<Tool>(*std::move(tool)) : nullptr;
}

}  // namespace

Stacks::Stacks(std::vector<Target> targets, Duration limit)
    : targets_(std::move(targets)),
      deadline_(Deadline::after(limit)),
      look_until_(now() + std::min<Duration>(kLook, limit)) {
  for (const Target& target : targets_) {
    waits_[target.rank] = kernel_waits(target.pid);
    looks_before_.push_back(target.page.read().look.number);
    const ProcessFacts facts = process_facts(target.pid);
    asked_.push_back(facts.catches_usr2 && !facts.is_suspended());
    if (asked_.back()) ::kill(target.pid, SIGUSR2);
  }
}

void Stacks::start_more() {
  while (running_.size() < kAtOnce && next_ < targets_.size() && !deadline_.expired()) {
    const Target& target = targets_[next_++];
    if (auto tool = debugger_of(target.pid, deadline_)) running_[target.rank] = std::move(tool);
  }
}

void Stacks::listen(PollSet& events) {
  for (auto& [rank, tool] : running_) tool->listen(events);
  events.wake_after(kStacksTurn);
}

bool Stacks::over() {
  // First their own word: a debugger that has stopped a rank keeps it from answering.
  if (now() < look_until_ && !deadline_.expired()) {
    for (std::size_t i = 0; i < targets_.size(); ++i)
      if (asked_[i] && targets_[i].page.read().look.number == looks_before_[i]) return false;
    look_until_ = now();
  }
  std::erase_if(running_, [&](auto& entry) {
    if (!entry.second->over()) return false;
    outputs_[entry.first] = entry.second->output();
    return true;
  });
  start_more();
  return running_.empty() && (next_ == targets_.size() || deadline_.expired());
}

std::vector<std::string> Stacks::short_stack(int rank, Deadline deadline) const {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].rank != rank) continue;
    const ProgressFrames look = targets_[i].page.read().look;
    if (look.number != 0 && look.number != looks_before_[i]) return backtrace_lines(look, deadline);
  }
  // Of a debugger's output the main thread, which gdb tells last and eu-stack first.
  std::vector<std::string> lines;
  const auto output = outputs_.find(rank);
  if (output == outputs_.end()) return lines;
  for (const std::string& line : split(output->second, '\n')) {
    if (line.starts_with("Thread ") || line.starts_with("TID ")) {
      if (line.starts_with("TID ") && !lines.empty()) break;
      lines.clear();
    } else if (line.starts_with("#")) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string Stacks::text_of(int rank, const std::vector<std::string>& short_stack) const {
  std::string text = "rank " + std::to_string(rank) + "\n";
  const auto paragraph = [&](const std::string& title, const std::string& body) {
    text += "\n" + title + "\n" + body + "\n";
  };
  if (const auto waits = waits_.find(rank); waits != waits_.end() && !waits->second.empty())
    paragraph("What its threads wait for in the kernel:", join(waits->second, "\n"));
  if (const auto output = outputs_.find(rank); output != outputs_.end() && !output->second.empty())
    paragraph("As a debugger sees it:", output->second);
  if (!short_stack.empty()) paragraph("Its main thread:", join(short_stack, "\n"));
  return text;
}

}  // namespace tutti
