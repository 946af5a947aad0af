#pragma once
// The traces (trace/region.h) of all ranks in one Chrome trace. The clocks of hosts differ: each rank compares its
// clock with rank 0's by messages back and forth, of which the fastest counts. The file records the difference.
#include <string>

#include "tutti/comm/group.h"
#include "tutti/trace/chrome_trace.h"

namespace tutti {

// On every rank: its own clock against rank 0's. On the host of rank 0 it is 0, exactly. Collective; throws Exception.
TraceRank compare_clocks(const Group& group);
// Rank 0 writes the file; its error reaches all ranks. The ranks' events are taken one after another, so that rank 0
// holds no more than it writes. Collective; other errors throw.
Status write_chrome_trace(const Group& group, const Trace& mine, const std::string& path);
// FOLDER/trace-rank0003.json
std::string rank_trace_path(const std::string& folder, int rank);
// Before a run that writes traces to an existing folder: removes the traces of ranks that this group does not have. An
// earlier run with more ranks left them, and a merge would count them as parts of this run. Returns how many.
Result<int> remove_traces_of_more_ranks(const Group& group, const std::string& folder);
// Every rank writes one file, FOLDER/trace-rank0003.json, and makes the folder if there is none: for traces too large
// for one rank, and hosts without a common file system. `tutti trace merge` merges them; they are on one time line
// already. Collective; other errors throw.
Status write_rank_trace(const Group& group, const Trace& mine, const std::string& folder);

}  // namespace tutti
