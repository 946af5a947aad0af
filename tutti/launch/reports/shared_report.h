#pragma once
// The report of a failure, from the node whose rank failed to the consoles of all others, through the job's store.
//
//   key   agents/report/<round>   its text, as that node's console has it
#include <string>

#include "tutti/store/tcp_store.h"

namespace tutti {

// `store`: as TUTTI_STORE has it. Block some seconds at most.
Status share_report(const std::string& store, const Credentials& credentials, int round, const std::string& text);
// Waits for it; kTimeout: the other node has told none.
Result<std::string> read_report(const std::string& store, const Credentials& credentials, int round, Duration patience);

}  // namespace tutti
