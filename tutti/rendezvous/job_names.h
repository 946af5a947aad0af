#pragma once
// Names that follow from the id of a job, the same on every rank, so that nobody has to tell them.
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// The id as part of a file name: odd characters replaced, at most 40 bytes, different for different jobs.
std::string file_name_of(const std::string& job);
// Ports for a store whose port nobody gave, in the order to try: below the range that the system hands out by itself.
std::vector<std::uint16_t> derived_ports(const std::string& job);

}  // namespace tutti
