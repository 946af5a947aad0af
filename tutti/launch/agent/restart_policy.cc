// A restart helps against causes outside the program: a broken node, a moment without memory, a file system that did
// not answer. It does not help against the program itself, which reaches the same step with the same data again. The
// place of the failure tells the two apart. A job that fails in different places makes progress and may restart as
// often as the user allows. A job that fails in the same place again and again only burns time, and its exit code says
// so.
#include "tutti/launch/agent/restart_policy.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::launch {
namespace {

constexpr double kQuick = 10;  // seconds: a rank that fails sooner, and reported no step, has done nothing
constexpr double kNoise = 0.25;
constexpr int kMostDoublings = 30;

// Steps are compared only among failures of ranks: a lost node says nothing about the program.
bool is_of_a_rank(const Fault& fault) { return fault.rank >= 0; }

bool made_progress(const std::vector<Fault>& all, std::size_t index) {
  std::int64_t furthest = -1;
  for (std::size_t i = 0; i < index; ++i) furthest = std::max(furthest, all[i].step);
  const Fault& fault = all[index];
  if (fault.step < 0 && furthest < 0) return fault.seconds >= kQuick;
  return fault.step > furthest;
}

// How many failures in a row, this one included, made no progress.
int times_in_place(const std::vector<Fault>& all) {
  int times = 1;
  for (std::size_t i = all.size(); i-- > 1 && !made_progress(all, i);) ++times;
  return times;
}

Duration pause_before(const RestartPolicy& policy, int times, const Fault& fault) {
  Duration pause = policy.first_pause;
  for (int i = 1; i < std::min(times, kMostDoublings) && pause < policy.longest_pause; ++i) pause *= 2;
  pause = std::min(pause, policy.longest_pause);
  // Noise from the fault's text, which contains a pid and a host name: no two jobs have the same.
  const double noise = double(std::hash<std::string>()(fault.text) % 1024) / 1023;
  return pause - from_seconds(to_seconds(pause) * kNoise * noise);
}

std::string place_text(const Fault& fault, int times) {
  const std::string often =
      times == 1 ? "and one failure is enough (--no-progress 1)" : std::to_string(times) + " times in a row";
  if (fault.step >= 0) return "step " + std::to_string(fault.step) + " was the last that was reached, " + often;
  if (fault.seconds >= kQuick) return "the ranks reported no step, " + often;  // or none since
  return "the ranks failed within " + seconds_text(kQuick) + " of their start, " + often;
}

}  // namespace

Verdict judge(const RestartPolicy& policy, const std::vector<Fault>& past, const Fault& fault) {
  if (fault.final || policy.most == 0) return {};
  if (is_of_a_rank(fault) && fault.code == kExitUsage)
    return {.reason = "no restart: exit code 2 means wrong usage, which a restart does not fix"};
  if (is_of_a_rank(fault) && fault.code == kExitNoProgress)
    return {.reason = "no restart: exit code 93 means that a restart would not help"};
  std::vector<Fault> own;
  std::copy_if(past.begin(), past.end(), std::back_inserter(own), is_of_a_rank);
  int times = 1;
  if (is_of_a_rank(fault)) {
    own.push_back(fault);
    times = times_in_place(own);
  }
  if (is_of_a_rank(fault) && policy.same_place > 0 && times >= policy.same_place)
    return {.code = kExitNoProgress,
            .reason = "no restart: " + place_text(fault, times) + ", so another restart would not help"};
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

int code_of_ends(std::span<const WorkerEnd> ends, int user_signal) {
  int saved = 0;
  for (const WorkerEnd& end : ends) {
    const int code = end.exit.shell_code();
    if (code == kExitSaved) saved = kExitSaved;
    if (code != 0 && code != kExitSaved) return end.exit.signal && user_signal ? 128 + user_signal : code;
  }
  return saved;
}

std::string saved_text(std::span<const WorkerEnd> ends, bool told) {
  std::vector<int> saved;
  for (const WorkerEnd& end : ends)
    if (end.exit.shell_code() == kExitSaved) saved.push_back(end.rank);
  return ranks_words(saved) + " left with code 75: their state is saved, and the job can be started again" +
         (told ? "" : " (this node got no stop signal)");
}

}  // namespace tutti::launch
