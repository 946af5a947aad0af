#pragma once
// What follows from the way a job's ranks ended: the exit code of the job, and whether the job restarts. Pure functions
// of what has ended or failed so far, so every node decides the same and a test can try any history.
#include <span>
#include <string>
#include <vector>

#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/reports/report.h"

namespace tutti::launch {

// The exit code of a node whose ranks ended so: 0 if all succeeded, 75 if some of them had saved, else a failed rank's
// code. `user_signal`: the signal by which the user stopped the job, else 0. A rank that a signal ended then counts as
// stopped by the user; one that left with a code of its own keeps it.
int code_of_ends(std::span<const WorkerEnd> ends, int user_signal);
// Which ranks left with code 75, and that the job can be started again. `told`: the job was told to stop on this node.
std::string saved_text(std::span<const WorkerEnd> ends, bool told);

struct RestartPolicy {
  int most = 0;                                           // restarts in all
  Duration first_pause = std::chrono::milliseconds(100);  // before a restart; each failure without progress doubles it
  Duration longest_pause = std::chrono::minutes(1);
  int same_place = 3;  // this many failures in a row without progress end the job with kExitNoProgress; 0: never
};

// What happens after `fault`, when `past` ended earlier attempts. A failure made progress if its step is beyond all
// earlier ones; where no rank reported a step, if the ranks ran for at least 10 s. The pause is shortened by up to a
// quarter at random, so that jobs that failed together do not restart together.
Verdict judge(const RestartPolicy& policy, const std::vector<Fault>& past, const Fault& fault);

}  // namespace tutti::launch
