#pragma once
// Which build of a program a process runs.
#include <string>

namespace tutti {

// The build id that the linker put into this program (GNU build id, hexadecimal); where it has none, the size of its
// file. Two copies of one program file have the same, two compilations of different sources never.
std::string program_build();
// The file of this program without its folder: for people.
std::string program_name();

}  // namespace tutti
