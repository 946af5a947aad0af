#pragma once
// The traces (trace/region.h) of all ranks in one Chrome trace. The clocks of hosts differ: each rank's is compared
// with rank 0's by messages back and forth, of which the fastest counts, and the difference stands in the file.
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
// Before a run whose traces are to go to a folder that exists: removes those of ranks that this group does not have, as
// an earlier run with more of them left there; merged with this run's they would be taken for parts of it. How many.
Result<int> remove_traces_of_more_ranks(const Group& group, const std::string& folder);
// Every rank writes a file of its own, FOLDER/trace-rank0003.json, and makes the folder where there is none: for traces
// too large for one rank, and hosts without a common file system. `tutti trace merge` puts them together; they lie on
// one time line already. Collective; other errors throw.
Status write_rank_trace(const Group& group, const Trace& mine, const std::string& folder);

}  // namespace tutti
