#pragma once
// The one line about the job at its start.
#include <string>
#include <vector>

#include "tutti/launch/layout.h"
#include "tutti/launch/tuning.h"

namespace tutti {

// "4 ranks, job J; set (yours win, --no-tune: none): OMP_NUM_THREADS=2 ...; removed 3 variables of another launcher
// (RANK, ...)". `settings`: what the workers get that the user has not set; `removed`: names, see remove_stale().
std::string announcement(const Layout& layout, const std::string& job, const std::vector<Setting>& settings,
                         const std::vector<std::string>& removed);

}  // namespace tutti
