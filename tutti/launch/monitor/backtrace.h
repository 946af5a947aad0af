#pragma once
// From the addresses that a process left in its progress page to functions, files and lines.
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/trace/progress/reader.h"

namespace tutti {

// Where an address lies: in which file, and at which of its bytes.
struct FilePlace {
  std::string file;  // empty: in none
  std::uint64_t offset = 0;

  bool operator==(const FilePlace&) const = default;
};
// By the text of /proc/PID/maps.
FilePlace find_in_maps(const std::string& maps, std::uint64_t address);
// The address that the linker gave to this byte of an ELF file; the offset itself where that cannot be told.
std::uint64_t linked_address(const std::string& file, std::uint64_t offset);

// What addr2line -a -f -C -i says, as the lines of one address each: "step(int) at train.cc:212", inlined ones after
// it; empty where it knows nothing.
std::vector<std::vector<std::string>> parse_addr2line(const std::string& output);

// Such lines, the innermost first, without those above that only end the process ("raise", "abort" ...), and from those
// that start the program or a thread on. The first line that is left is never taken away.
std::vector<std::string> of_the_program(std::vector<std::string> lines);

// A line for each frame, the innermost first: "step(int) at train.cc:212", "in libfoo.so, +0x1234". Needs addr2line
// (binutils) for the names; without it, or after the deadline, files and offsets.
std::vector<std::string> backtrace_lines(const ProgressFrames& frames, Deadline deadline);

}  // namespace tutti
