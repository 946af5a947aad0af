#pragma once
// What the agent sees of ranks that are alive: that one is stopped, that memory ran out, that one is slow, that all
// hang; and, of those that are dead, what they did last.
//
// Threads: one, the agent's.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/agent/poll_set.h"
#include "tutti/launch/agent/workers.h"
#include "tutti/launch/monitor/hang.h"
#include "tutti/launch/monitor/node_status.h"
#include "tutti/launch/monitor/options.h"
#include "tutti/launch/monitor/process_facts.h"
#include "tutti/launch/monitor/stacks.h"
#include "tutti/launch/monitor/stragglers.h"
#include "tutti/launch/reports/report.h"

namespace tutti {

struct Hang {
  std::string text;  // "no rank has got on for 5 min (learned: ...): ranks 0, 1 wait in ... for rank 2: ..."
  int rank = -1;     // the one that the others wait for, or the first that hangs
  std::int64_t step = -1;
  bool blamed = false;  // a rank of this node is to blame
};

// What is remembered of a rank, for reports and `tutti status`.
struct RankWatch {
  RankSeen seen;  // as of the last look
  ProcessFacts process;
  Clock::time_point moved;  // its pulse
  double steps_a_second = 0;
};

class Monitor {
 public:
  // `nobody`: "no rank", "no rank of node 1 (b)". `folder`: for stacks. `say`: lines to the user, without "[tutti] ".
  Monitor(const MonitorOptions& options, std::string nobody, std::string folder,
          std::function<void(const std::string&)> say);

  void listen(PollSet& events, Workers& workers);
  // Once a turn: looks at the ranks when it is time to. A hang, once its stacks are gathered.
  std::optional<Hang> look(Workers& workers);

  // A rank failed, or the job hangs: what all do now is what the report tells.
  void freeze(Workers& workers);
  // Of another rank that is about to die of a fatal signal (it dumps core): the cause of what `worker` ended by, which
  // is only seen first. Null: none.
  Worker* dying(Workers& workers, const Worker& worker) const;
  // Fills in what is known of the culprit and the others. Blocks some seconds at most.
  void complete(Failure& failure, Workers& workers) const;

  // How they are doing, as of now.
  std::vector<RankStatus> status(Workers& workers) const;

 private:
  void look_at(Worker& worker, RankWatch& watch);
  void look_at_memory();
  void look_for_slow_ranks();
  void look_for_hang(Workers& workers);
  std::vector<RankSeen> seen() const;
  Hang finish_hang(Workers& workers);
  std::string memory_words(const WorkerEnd& culprit, bool out_of_memory) const;

  const MonitorOptions options_;
  const std::string nobody_, folder_;
  const std::function<void(const std::string&)> say_;
  std::vector<RankWatch> ranks_;
  std::vector<RankSeen> frozen_;
  Clock::time_point next_look_{};
  Clock::time_point last_moved_ = now();
  Duration hung_for_{};  // when the hang was seen; gathering the stacks takes a while
  HangLimit limit_;
  bool warned_ = false, hangs_ = false, failed_ = false;
  std::unique_ptr<Stacks> stacks_;
  std::map<int, std::vector<std::string>> short_stacks_;
  std::int64_t kills_ = 0;
  std::uint64_t memory_used_ = 0;  // of the cgroup, at the last look before the failure
  Stragglers slow_;
};

}  // namespace tutti
