#pragma once
// Watches the ranks of a node: notices a stopped rank, the out-of-memory killer, a slow rank, and a hang. Of dead ranks
// it knows what they did last.
//
// Threads: one, the agent's.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/agent/workers.h"
#include "tutti/launch/monitor/node_status.h"
#include "tutti/launch/monitor/process_info.h"
#include "tutti/launch/monitor/stacks.h"
#include "tutti/launch/monitor/stalls.h"
#include "tutti/launch/reports/report.h"

namespace tutti::launch {

struct Hang {
  std::string text;  // "no rank has made progress for 5 min (learned: ...): ranks 0, 1 wait in ... for rank 2: ..."
  int rank = -1;     // the rank that the others wait for, or the first that hangs
  std::int64_t step = -1;
  bool blamed = false;  // a rank of this node is to blame
};

// What is remembered about a rank, for reports and `tutti status`.
struct WatchedRank {
  RankSeen seen;  // at the last check
  ProcessInfo process;
  Clock::time_point moved;  // its last progress
  double steps_a_second = -1;
};

class Monitor {
 public:
  // `nobody`: "no rank", "no rank of node 1 (b)". `folder`: for stacks. `say`: prints a line, without "[tutti] ".
  Monitor(const MonitorOptions& options, std::string nobody, std::string folder,
          std::function<void(const std::string&)> say);

  void listen(PollSet& events, Workers& workers);
  // Call once a turn; checks the ranks twice a second. Returns a hang, once its stacks are gathered.
  std::optional<Hang> check(Workers& workers);

  // A rank failed, or the job hangs: records what all ranks do now, for the report.
  void freeze(Workers& workers);
  // Another rank that is dying of a fatal signal (it dumps core), which caused the end of `worker`; null: none.
  Worker* dying(Workers& workers, const Worker& worker) const;
  // Fills in what is known about the culprit and the others. Blocks some seconds at most.
  void complete(Failure& failure, Workers& workers) const;

  // How the ranks are doing now.
  std::vector<RankStatus> status(Workers& workers) const;

 private:
  void observe(Worker& worker, WatchedRank& watched);
  void check_memory();
  void check_for_stragglers();
  void check_for_hang(Workers& workers);
  std::vector<RankSeen> seen() const;
  Hang finish_hang(Workers& workers);
  std::string memory_text(const WorkerEnd& culprit, bool out_of_memory) const;

  const MonitorOptions options_;
  const std::string nobody_, folder_;
  const std::function<void(const std::string&)> say_;
  std::vector<WatchedRank> ranks_;
  std::vector<RankSeen> frozen_;
  Clock::time_point next_check_{};
  Clock::time_point last_moved_ = now();
  Duration hung_for_{};  // when the hang was found; gathering the stacks takes a while
  HangLimit limit_;
  bool warned_ = false, hangs_ = false, failed_ = false;
  std::unique_ptr<Stacks> stacks_;
  std::map<int, std::vector<std::string>> short_stacks_;
  std::int64_t kills_ = 0;
  std::uint64_t memory_used_ = 0;  // by the cgroup, at the last check before the failure
  Stragglers stragglers_;
};

}  // namespace tutti::launch
