#pragma once
// A trace as the table that PyTorch's profiler prints (torch.autograd.profiler, key_averages().table()): a line for
// each name, the columns Name, Self CPU %, Self CPU, CPU total %, CPU total, CPU time avg, # of Calls. "CPU" is the
// time on the thread, waiting included, as it is there. Spans, which no thread does, are not in it.
#include <string>

#include "tutti/trace/region.h"

namespace tutti {

enum class ProfileOrder { kSelfTime, kTotalTime, kCalls, kName };

struct ProfileTableOptions {
  ProfileOrder order = ProfileOrder::kSelfTime;  // largest first; names from A to Z
  bool by_detail = false;                        // a line for each (name, detail), with the detail in a column more
  std::size_t most_rows = 100;
};

std::string profile_table(const Trace& trace, const ProfileTableOptions& options = {});

}  // namespace tutti
