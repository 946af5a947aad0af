// The process left what is cheap to leave: addresses, and the lines of its maps. A file's program headers lead from a
// byte of the file to the address that the linker gave it, under which debug information knows it. A return address
// points behind the call, which may be another line: one less is the call itself.
#include "tutti/launch/monitor/backtrace.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/monitor/tool.h"

namespace tutti {
namespace {

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));  // NOLINT: %llx needs it
  return text;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "raise at /src/a.c:3", "raise in libc.so.6", "raise@@GLIBC_2.2.5 in ...", "abort.cold in ..."; of C++, with its
// parameters. A function of the program whose name only begins alike ("raise_error(int)"), or which is no function of C
// ("raise(int)"), is not.
bool is_of(const std::string& line, std::string_view function) {
  if (!line.starts_with(function)) return false;
  const std::string_view rest = std::string_view(line).substr(function.size());
  if (function.find("::") != std::string_view::npos) return rest.starts_with('(');
  return rest.empty() || rest[0] == '@' || rest[0] == '.' || rest.starts_with(" at ") || rest.starts_with(" in ");
}

bool is_of_one(const std::string& line, std::initializer_list<const char*> functions) {
  return std::any_of(functions.begin(), functions.end(), [&](const char* function) { return is_of(line, function); });
}

// main() is where a reader stops; the C library and the thread's start below it tell nothing.
bool is_below_the_program(const std::string& line) {
  return is_of_one(line, {"__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "_start",
                          "start_thread", "__clone", "clone", "__GI___clone", "__clone3", "clone3", "__GI___clone3"});
}

// How a process that gives up got there.
bool is_giving_up(const std::string& line) {
  return is_of_one(line,
                   {"__pthread_kill_implementation", "__pthread_kill_internal", "__pthread_kill", "___pthread_kill",
                    "pthread_kill", "__GI___pthread_kill", "__GI_raise", "raise", "gsignal", "__GI_abort", "abort",
                    "__gnu_cxx::__verbose_terminate_handler", "__cxxabiv1::__terminate", "std::terminate"});
}

}  // namespace

FilePlace find_in_maps(const std::string& maps, std::uint64_t address) {
  for (const std::string& line : split(maps, '\n')) {
    unsigned long long begin = 0, end = 0, offset = 0;  // NOLINT: sscanf's
    int path = -1;
    if (std::sscanf(line.c_str(), "%llx-%llx %*s %llx %*s %*s %n", &begin, &end, &offset, &path) < 3) continue;
    if (address < begin || address >= end) continue;
    FilePlace place{.offset = address - begin + offset};
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
  while (begin + 1 < lines.size() && is_giving_up(lines[begin])) ++begin;
  lines.erase(lines.begin(), lines.begin() + std::ptrdiff_t(begin));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (!is_below_the_program(lines[i])) continue;
    lines.resize(i);
    break;
  }
  return lines;
}

std::vector<std::string> backtrace_lines(const ProgressFrames& stack, Deadline deadline) {
  std::vector<FilePlace> places;
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

}  // namespace tutti
