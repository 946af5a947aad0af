// A process that crashed, or was asked for its stack, left what is cheap to leave: addresses, and the lines of its
// maps. A file's program headers lead from a byte of the file to the address that the linker gave it, under which debug
// information knows it. A return address points after the call, which may be another line: one less is the call itself.
#include "tutti/launch/monitor/stacks.h"

#include <elf.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/monitor/process_info.h"
#include "tutti/launch/process.h"

namespace tutti::launch {
namespace {

constexpr std::size_t kAtOnce = 2;  // debuggers that run at the same time
constexpr auto kAnswerLimit = std::chrono::milliseconds(500);
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

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));  // NOLINT: %llx needs it
  return text;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "raise at /src/a.c:3", "raise in libc.so.6", "raise@@GLIBC_2.2.5 in ...", "abort.cold in ..."; of C++, with its
// parameters. A function of the program whose name only begins so ("raise_error(int)"), or which is not a C function
// ("raise(int)"), does not match.
bool is_of(const std::string& line, std::string_view function) {
  if (!line.starts_with(function)) return false;
  const std::string_view rest = std::string_view(line).substr(function.size());
  if (function.find("::") != std::string_view::npos) return rest.starts_with('(');
  return rest.empty() || rest[0] == '@' || rest[0] == '.' || rest.starts_with(" at ") || rest.starts_with(" in ");
}

bool is_of_one(const std::string& line, std::initializer_list<const char*> functions) {
  return std::any_of(functions.begin(), functions.end(), [&](const char* function) { return is_of(line, function); });
}

// main() is where a reader stops; the C library and the start of the thread are below it.
bool is_below_the_program(const std::string& line) {
  return is_of_one(line, {"__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "_start",
                          "start_thread", "__clone", "clone", "__GI___clone", "__clone3", "clone3", "__GI___clone3"});
}

// The functions through which a process aborts.
bool is_aborting(const std::string& line) {
  return is_of_one(line,
                   {"__pthread_kill_implementation", "__pthread_kill_internal", "__pthread_kill", "___pthread_kill",
                    "pthread_kill", "__GI___pthread_kill", "__GI_raise", "raise", "gsignal", "__GI_abort", "abort",
                    "__gnu_cxx::__verbose_terminate_handler", "__cxxabiv1::__terminate", "std::terminate"});
}

constexpr std::size_t kMostOutput = 8 << 20;
constexpr auto kStartLimit = std::chrono::seconds(2);

}  // namespace

std::optional<Tool> Tool::start(const std::string& name, std::vector<std::string> arguments, Deadline deadline) {
  const auto path = find_program(name, env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  if (!path.ok()) return {};
  Environment environment = current_environment();
  environment["LC_ALL"] = "C";
  environment.erase("DEBUGINFOD_URLS");  // or gdb would ask a server on the network
  arguments.insert(arguments.begin(), name);
  auto process = start_process({.path = *path,
                                .arguments = std::move(arguments),
                                .environment = to_strings(environment),
                                .patience = kStartLimit});
  if (!process.ok()) return {};
  return Tool(*std::move(process), deadline);
}

void Tool::read_output() {
  char bytes[16 * 1024];
  const ssize_t count = ::read(process_.output.get(), bytes, sizeof bytes);
  if (count > 0 && output_.size() < kMostOutput) output_.append(bytes, std::size_t(count));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) process_.output.reset();
}

void Tool::read_errors() {
  char bytes[4096];
  const ssize_t count = ::read(process_.errors.get(), bytes, sizeof bytes);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) process_.errors.reset();
}

void Tool::listen(PollSet& events) {
  events.watch(process_.output.get(), POLLIN, [this] { read_output(); });
  events.watch(process_.errors.get(), POLLIN, [this] { read_errors(); });
  events.wake_at(deadline_.at());
}

bool Tool::over() {
  if (!process_.output) return true;
  if (!deadline_.expired()) return false;
  ::kill(process_.pid, SIGKILL);
  process_.output.reset();
  process_.errors.reset();
  return true;
}

std::string Tool::finish() && {
  while (!over()) {
    PollSet events;
    listen(events);
    events.wait();
  }
  return std::move(output_);
}

FileOffset find_in_maps(const std::string& maps, std::uint64_t address) {
  for (const std::string& line : split(maps, '\n')) {
    unsigned long long begin = 0, end = 0, offset = 0;  // NOLINT: sscanf's
    int path = -1;
    if (std::sscanf(line.c_str(), "%llx-%llx %*s %llx %*s %*s %n", &begin, &end, &offset, &path) < 3) continue;
    if (address < begin || address >= end) continue;
    FileOffset place{.offset = address - begin + offset};
    if (path > 0 && std::size_t(path) < line.size()) place.file = line.substr(std::size_t(path));
    return place;
  }
  return {};
}

std::uint64_t linked_address(const std::string& file, std::uint64_t offset) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return offset;
  in.seekg(std::streamoff(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) break;
    if (part.p_type == PT_LOAD && offset >= part.p_offset && offset < part.p_offset + part.p_filesz)
      return offset - part.p_offset + part.p_vaddr;
  }
  return offset;
}

std::vector<std::vector<std::string>> parse_addr2line(const std::string& output) {
  // "0x...", then pairs of lines: function, file:line; more pairs for the functions that it was inlined into.
  std::vector<std::vector<std::string>> all;
  std::string function;
  for (std::string line : split(output, '\n')) {
    if (line.starts_with("0x")) {
      all.emplace_back();
      function.clear();
      continue;
    }
    if (all.empty() || line.empty()) continue;
    if (function.empty()) {
      function = line;
      continue;
    }
    if (const auto note = line.find(" (discriminator"); note != std::string::npos) line.erase(note);
    if (function != "??") {
      const bool unknown = line.starts_with("??") || line.ends_with(":?") || line.ends_with(":0");
      all.back().push_back(function +
                           (unknown ? "" : " at " + std::filesystem::path(line).lexically_normal().string()));
    }
    function.clear();
  }
  return all;
}

std::vector<std::string> of_the_program(std::vector<std::string> lines) {
  std::size_t begin = 0;
  while (begin + 1 < lines.size() && is_aborting(lines[begin])) ++begin;
  lines.erase(lines.begin(), lines.begin() + std::ptrdiff_t(begin));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (!is_below_the_program(lines[i])) continue;
    lines.resize(i);
    break;
  }
  return lines;
}

std::vector<std::string> backtrace_lines(const trace::ProgressFrames& stack, Deadline deadline) {
  std::vector<FileOffset> places;
  std::map<std::string, std::vector<std::size_t>> of_file;
  for (std::size_t i = 0; i < stack.frames.size(); ++i) {
    places.push_back(find_in_maps(stack.maps, stack.frames[i] - (i > 0 ? 1 : 0)));
    if (places.back().file.starts_with('/')) of_file[places.back().file].push_back(i);
  }
  std::vector<std::vector<std::string>> named(places.size());
  for (const auto& [file, frames] : of_file) {
    std::vector<std::string> arguments = {"-e", file, "-a", "-f", "-C", "-i"};
    for (const std::size_t i : frames) arguments.push_back(hex(linked_address(file, places[i].offset)));
    if (deadline.expired()) break;
    auto tool = Tool::start("addr2line", std::move(arguments), deadline);
    if (!tool) break;
    auto answers = parse_addr2line(std::move(*tool).finish());
    for (std::size_t k = 0; k < answers.size() && k < frames.size(); ++k) named[frames[k]] = std::move(answers[k]);
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!named[i].empty()) {
      for (std::string& line : named[i])
        lines.push_back(line.find(" at ") == std::string::npos ? line + " in " + base_name(places[i].file)
                                                               : std::move(line));
    } else if (!places[i].file.empty()) {
      lines.push_back("in " + base_name(places[i].file) + ", +" + hex(places[i].offset));
    } else {
      lines.push_back("at " + hex(stack.frames[i]));
    }
  }
  return of_the_program(std::move(lines));
}

Stacks::Stacks(std::vector<Target> targets, Duration limit)
    : targets_(std::move(targets)),
      deadline_(Deadline::after(limit)),
      answers_until_(now() + std::min<Duration>(kAnswerLimit, limit)) {
  for (const Target& target : targets_) {
    waits_[target.rank] = kernel_waits(target.pid);
    looks_before_.push_back(target.page.read().look.number);
    const ProcessInfo info = process_info(target.pid);
    asked_.push_back(info.handles(SIGUSR2) && !is_suspended(target.pid));
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
  // First the ranks' own answers: a rank that a debugger has stopped cannot answer.
  if (now() < answers_until_ && !deadline_.expired()) {
    for (std::size_t i = 0; i < targets_.size(); ++i)
      if (asked_[i] && targets_[i].page.read().look.number == looks_before_[i]) return false;
    answers_until_ = now();
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
    const trace::ProgressFrames look = targets_[i].page.read().look;
    if (look.number != 0 && look.number != looks_before_[i]) return backtrace_lines(look, deadline);
  }
  // The main thread of a debugger's output, which gdb prints last and eu-stack first.
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

}  // namespace tutti::launch
