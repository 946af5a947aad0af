#pragma once
// What a node tells the others when they meet for `tutti doctor`.
#include <string>
#include <vector>

#include "tutti/doctor/finding.h"
#include "tutti/doctor/pair_probe.h"

namespace tutti {

struct DoctorNote {
  std::string host;     // its name
  std::string version;  // of tutti
  int ranks = 1;
  ProbeTarget target;             // where the others can try the way to it
  std::vector<Finding> findings;  // about the host itself
};

std::string encode(const DoctorNote& note);
// kCorrupt: of another version of tutti, or damaged.
Result<DoctorNote> parse_doctor_note(const std::string& text);

}  // namespace tutti
