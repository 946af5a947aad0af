#pragma once
// The report of a failure, from the node whose rank failed to the consoles and files of all others, through the job's
// store.
//
//   key   agents/report/<round>         its text, as that node's console has it
//         agents/report_json/<round>    failure_json(), told before the text
#include <string>

#include "tutti/store/tcp_store.h"

namespace tutti {

struct SharedReport {
  std::string text, json;
};

// `store`: as TUTTI_STORE has it. Block some seconds at most. Of a text the first MiB is told, of a JSON beyond that
// nothing.
Status share_report(const std::string& store, const Credentials& credentials, int round, const SharedReport& report);
// Waits for it; kTimeout: the other node has told none. The JSON may be empty.
Result<SharedReport> read_report(const std::string& store, const Credentials& credentials, int round,
                                 Duration patience);

}  // namespace tutti
