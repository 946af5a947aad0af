// A restart heals what comes from outside: a node that broke, memory that was short for a moment, a file system that
// did not answer. It does not heal the program, which meets the same step with the same data again. The two are told
// apart by where the job fails: in other places, it gets on and may restart as often as the user said; in the same
// place again and again, restarting only burns time, and whoever started the job should hear so from the exit code.
#include "tutti/launch/attempts/restart_policy.h"

#include <algorithm>
#include <functional>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"

namespace tutti {
namespace {

constexpr double kQuick = 10;  // seconds: who fails sooner, and tells no step, has done nothing
constexpr double kNoise = 0.25;
constexpr int kMostDoublings = 30;

// Steps are compared only among the program's own failures: a node that is lost says nothing about the program.
bool is_of_a_rank(const Fault& fault) { return fault.rank >= 0; }

bool got_further(const std::vector<Fault>& all, std::size_t index) {
  std::int64_t furthest = -1;
  for (std::size_t i = 0; i < index; ++i) furthest = std::max(furthest, all[i].step);
  const Fault& fault = all[index];
  if (fault.step < 0 && furthest < 0) return fault.seconds >= kQuick;
  return fault.step > furthest;
}

// How often in a row the job has now failed without getting further, the first time included.
int times_here(const std::vector<Fault>& all) {
  int times = 1;
  for (std::size_t i = all.size(); i-- > 1 && !got_further(all, i);) ++times;
  return times;
}

Duration pause_before(const RestartPolicy& policy, int times, const Fault& fault) {
  Duration pause = policy.first_pause;
  for (int i = 1; i < std::min(times, kMostDoublings) && pause < policy.longest_pause; ++i) pause *= 2;
  pause = std::min(pause, policy.longest_pause);
  // Of the words, which carry a process number and a host name: no two jobs have the same.
  const double noise = double(std::hash<std::string>()(fault.text) % 1024) / 1023;
  return pause - from_seconds(to_seconds(pause) * kNoise * noise);
}

std::string place_words(const Fault& fault, int times) {
  const std::string often =
      times == 1 ? "and one failure is enough (--no-progress 1)" : std::to_string(times) + " times in a row";
  if (fault.step >= 0) return "step " + std::to_string(fault.step) + " was the last that was reached, " + often;
  if (fault.seconds >= kQuick) return "the ranks told no step, " + often;  // or had, and got no further since
  return "the ranks failed within " + seconds_text(kQuick) + " of their start, " + often;
}

}  // namespace

Verdict judge(const RestartPolicy& policy, const std::vector<Fault>& past, const Fault& fault) {
  if (fault.final || policy.most == 0) return {};
  if (is_of_a_rank(fault) && fault.code == kExitUsage)
    return {.reason = "no restart: exit code 2 means wrong usage, which a restart does not mend"};
  if (is_of_a_rank(fault) && fault.code == kExitNoProgress)
    return {.reason = "no restart: exit code 93 means that it would not help"};
  std::vector<Fault> own;
  std::copy_if(past.begin(), past.end(), std::back_inserter(own), is_of_a_rank);
  int times = 1;
  if (is_of_a_rank(fault)) {
    own.push_back(fault);
    times = times_here(own);
  }
  if (is_of_a_rank(fault) && policy.same_place > 0 && times >= policy.same_place)
    return {.code = kExitNoProgress,
            .reason = "no restart: " + place_words(fault, times) + ", so another would not help"};
  const int used = int(past.size());
  if (used >= policy.most)
    return {.reason = policy.most == 1 ? "the one restart is used"
                                       : "all " + std::to_string(policy.most) + " restarts are used"};
  const Duration pause = pause_before(policy, times, fault);
  return {.restart = true,
          .pause = pause,
          .reason = "restart " + std::to_string(used + 1) + " of " + std::to_string(policy.most) + " in " +
                    seconds_text(to_seconds(pause))};
}

}  // namespace tutti
