#pragma once
// Whether a job that failed starts again, and when: a pure function of what has failed so far, so that it is decided
// the same whoever decides, and a test can be any history.
#include "tutti/launch/membership/rendezvous.h"

namespace tutti {

struct RestartPolicy {
  int most = 0;                                           // restarts in all
  Duration first_pause = std::chrono::milliseconds(100);  // before a restart; doubled by each failure on the spot
  Duration longest_pause = std::chrono::minutes(1);
  int same_place = 3;  // failures in a row that got no further end the job with kExitNoProgress; 0: they do not
};

// What comes after `fault`, when `past` ended earlier attempts. A failure got further than those before if its step is
// beyond all of theirs; where no rank has told a step, if the ranks ran for at least 10 s. The pause carries up to a
// quarter of noise, so that jobs that failed together do not come back together.
Verdict judge(const RestartPolicy& policy, const std::vector<Fault>& past, const Fault& fault);

}  // namespace tutti
