// A good report names one culprit. The other ranks fail too, because their peer is gone or because the agent stops
// them, and a list of every exit code would bury the one that matters. So one line names them, without blame: a rank
// that was late may be the reason of a timeout. But a rank that ended by a signal that the agent did not send, or with
// a code before it was told to stop and without a message about a peer, may have had a reason of its own, and is listed
// as such.
#include "tutti/launch/reports/report.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <set>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/output/traceback.h"
#include "tutti/trace/flight/dump.h"

namespace tutti::launch {
namespace {

constexpr std::size_t kMostOthers = 8;  // lines, or sentences in a line, about ranks other than the culprit

// Sanitized, because much of it was written by ranks.
void add_line(std::string& report, const std::string& line) { report += "\n[tutti]   " + sanitize(line); }

// Text of several lines; the later ones are indented.
void add_block(std::string& report, const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) add_line(report, (i == 0 ? "" : "  ") + lines[i]);
}

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

// "[.../gloo/transport/tcp/pair.cc:144] Connection refused, remote=[127.0.1.1]:21123", and of PyTorch 1.13
// "[./gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:4513: Connection refused"
bool is_gloo_on_loopback(const std::string& line) {
  const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
  return has("gloo") && (has("remote=[127.") || has("connect [127."));
}

std::string hint_of(const Failure& failure) {
  const Exit& exit = failure.culprit.exit;
  if (failure.out_of_memory && exit.signal == SIGKILL) {
    return "the kernel's out-of-memory killer struck in this cgroup: fewer ranks, smaller batches, or a higher memory "
           "limit";
  }
  switch (exit.signal) {
    case SIGKILL:
      if (failure.culprit.sent == SIGKILL) return {};
      return "tutti did not send it: a kill -9 by hand, or the out-of-memory killer (see dmesg)";
    case SIGILL:
      return "an instruction that this CPU lacks: was the program built for another CPU, or OPENBLAS_CORETYPE set too "
             "high?";
    case SIGXFSZ:
      return "a file would have grown past the limit of file sizes: ulimit -f unlimited; memory that processes share "
             "counts as a file for it";
    case SIGBUS:
      return "memory that is mapped but cannot be had: a full /dev/shm or disk, or a file that was cut";
    default:
      break;
  }
  if (exit.signal == 0 && exit.code == 127)
    return "127 often means that a shell did not find a command or a library is missing";
  if (exit.signal == 0 && exit.code > 128 && exit.code <= 128 + SIGRTMAX)
    return "a shell exits with this code when its command was killed by " + signal_name(exit.code - 128);
  std::deque<std::string> lines = failure.last_lines;
  lines.push_back(first_line_of(failure.message));
  if (std::any_of(lines.begin(), lines.end(), is_gloo_on_loopback))
    return "Gloo took a loopback address for that of a host, as /etc/hosts on Debian suggests (127.0.1.1): let "
           "GLOO_SOCKET_IFNAME name the interface that reaches the other hosts, or use the backend tutti";
  return {};
}

// How other libraries report that another rank is gone: a name in the line, and words in it. Of the words alone, a
// broken connection to a server for data would count as well.
constexpr std::array<std::pair<const char*, const char*>, 5> kLostByOthers = {
    {{"gloo", "Connection closed by peer"},
     {"gloo", "Connection reset by peer"},
     {"gloo", "Broken pipe"},
     {"NCCL", "remote process exited"},
     {"DistNetworkError", "Connection was likely closed"}}};

// A message that only says that another rank is gone: the text of an Error (base/error.h), which the backend tutti
// raises as "torch.distributed.DistBackendError: tutti: PeerLost: ...", or an exception of Gloo, NCCL or PyTorch.
bool names_another_rank(const std::string& message) {
  const std::string line = first_line_of(message);
  const auto has = [&](const std::string& text) { return line.find(text) != std::string::npos; };
  for (const std::string error : {"PeerLost: ", "Aborted: "})
    if (line.starts_with(error) || has("tutti: " + error)) return true;
  return std::any_of(kLostByOthers.begin(), kLostByOthers.end(),
                     [&](const auto& lost) { return has(lost.first) && has(lost.second); });
}

// The last lines of the culprit that are not in its message, where a traceback has them.
std::deque<std::string> other_last_lines(const Failure& failure) {
  const std::vector<std::string> lines = split(failure.message, '\n');
  const std::set<std::string> shown(lines.begin() + 1, lines.end());
  if (shown.empty()) return failure.last_lines;
  std::deque<std::string> others;
  for (const std::string& line : failure.last_lines)
    if (!shown.contains(sanitize(plain_line(line)))) others.push_back(line);
  return others;
}

// A text, and the ranks that it is about: what several ranks report is printed once.
struct SameText {
  std::string text;
  std::vector<int> ranks;
};

void add_text(std::vector<SameText>& all, int rank, std::string text) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const SameText& said) { return said.text == text; });
  if (at == all.end())
    all.push_back({std::move(text), {rank}});
  else
    at->ranks.push_back(rank);
}

// "exited with code 1: ValueError: ..."
std::string end_text(const WorkerEnd& worker, const Failure& failure) {
  const auto seen = failure.others.find(worker.rank);
  const std::string how = to_string(worker.exit), message = seen == failure.others.end() ? "" : seen->second.message;
  if (message.empty()) return how;
  const std::string line = first_line_of(message);
  return line == first_line_of(failure.message) ? how + " with the same message" : how + ": " + line;
}

// "ranks 1-3 were killed by SIGSEGV"
std::string ends_text(const SameText& said) {
  const bool plural = said.ranks.size() > 1 && said.text.starts_with("was ");
  return ranks_words(said.ranks) + " " + (plural ? "were" + said.text.substr(3) : said.text);
}

std::string failed_as_well_text(const std::vector<const WorkerEnd*>& ends, const Failure& failure) {
  std::vector<SameText> all;
  for (const WorkerEnd* worker : ends) add_text(all, worker->rank, end_text(*worker, failure));
  std::vector<std::string> texts;
  std::vector<int> more;
  for (const SameText& said : all) {
    if (texts.size() < kMostOthers) {
      texts.push_back(ends_text(said));
    } else {
      more.insert(more.end(), said.ranks.begin(), said.ranks.end());
    }
  }
  std::sort(more.begin(), more.end());
  return "failed as well, because of it or by itself: " + join(texts, "; ") +
         (more.empty() ? "" : "; and " + ranks_words(more));
}

// A line for each role.
std::vector<std::string> role_lines(const Failure& failure, const std::vector<WorkerEnd>& all) {
  std::map<FailureRole, std::vector<int>> ranks;
  std::vector<const WorkerEnd*> failed;
  for (const WorkerEnd& worker : all) {
    const FailureRole role = role_of(worker, failure);
    ranks[role].push_back(worker.rank);
    if (role == FailureRole::kFailedAsWell) failed.push_back(&worker);
  }
  std::vector<std::string> lines;
  const auto say = [&](FailureRole role, const std::string& before, const char* one, const char* many) {
    const std::vector<int>& who = ranks[role];
    if (!who.empty()) lines.push_back(before + ranks_words(who) + (who.size() == 1 ? one : many));
  };
  say(FailureRole::kSuspended, "suspended: ", " was stopped (SIGSTOP or a debugger): the others may have waited for it",
      " were stopped (SIGSTOP or a debugger): the others may have waited for them");
  if (!failed.empty()) lines.push_back(failed_as_well_text(failed, failure));
  say(FailureRole::kStopped, "also ended: ", " was running and ended because of it",
      " were running and ended because of it");
  const std::string killed = " ran for another " + seconds_text(failure.grace) + " after SIGTERM and needed SIGKILL";
  say(FailureRole::kKilled, "also ended: ", killed.c_str(), killed.c_str());
  say(FailureRole::kEnded, "also ended: ", " had already ended with code 0", " had already ended with code 0");
  return lines;
}

// What the other ranks were doing.
std::vector<std::string> others_lines(const Failure& failure) {
  std::vector<SameText> all;
  for (const auto& [rank, seen] : failure.others) {
    if (seen.doing.empty()) continue;
    std::string text = seen.doing;
    for (const std::string& frame : seen.stack) text += "\n    " + frame;
    add_text(all, rank, std::move(text));
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(all.size(), kMostOthers); ++i)
    for (std::string& line : split(ranks_words(all[i].ranks) + " then: " + all[i].text, '\n'))
      lines.push_back(std::move(line));
  if (all.size() > kMostOthers) lines.push_back("... (of all ranks: the JSON report)");
  return lines;
}

// Earlier messages of ranks for people, such as that checkpoints were not saved.
std::vector<std::string> alarm_lines(const Failure& failure) {
  std::vector<SameText> all;
  const auto add = [&](int rank, const LastActivity& seen) {
    if (!seen.alarm.empty()) add_text(all, rank, seen.alarm);
  };
  add(failure.culprit.rank, failure.seen);
  for (const auto& [rank, seen] : failure.others) add(rank, seen);
  std::vector<std::string> lines;
  for (const SameText& said : all)
    if (lines.size() < kMostOthers) lines.push_back("alarm of " + ranks_words(said.ranks) + ": " + said.text);
  return lines;
}

}  // namespace

FailureRole role_of(const WorkerEnd& worker, const Failure& failure) {
  if (worker.rank == failure.culprit.rank) return FailureRole::kCulprit;
  if (worker.suspended) return FailureRole::kSuspended;
  const Exit& exit = worker.exit;
  if (worker.needed_kill && exit.signal == SIGKILL) return FailureRole::kKilled;
  if (exit.ok() || exit.shell_code() == kExitSaved) return worker.stopped ? FailureRole::kStopped : FailureRole::kEnded;
  if (exit.signal == 0 && worker.sent != 0) return FailureRole::kStopped;  // in response to the signal
  if (exit.signal != 0 && exit.signal == worker.sent) return FailureRole::kStopped;
  const auto seen = failure.others.find(worker.rank);
  const bool explained =
      seen != failure.others.end() && (seen->second.for_others || names_another_rank(seen->second.message));
  return explained ? FailureRole::kStopped : FailureRole::kFailedAsWell;
}

std::string fault_text(const WorkerEnd& worker, const std::string& host) {
  return "rank " + std::to_string(worker.rank) + " (pid " + std::to_string(worker.pid) + " on " + host + ") " +
         to_string(worker.exit);
}

std::string failure_report(const Failure& failure, const std::vector<WorkerEnd>& all) {
  const WorkerEnd& culprit = failure.culprit;
  std::string report = "[tutti] " + failure.what + " failed: " +
                       sanitize(failure.headline.empty() ? fault_text(culprit, failure.host) + ", " +
                                                               seconds_text(culprit.seconds) + " after its start"
                                                         : failure.headline);
  if (!failure.message.empty()) add_block(report, "its message: " + failure.message);
  if (!failure.seen.doing.empty()) add_line(report, "at its end: " + failure.seen.doing);
  if (!failure.memory.empty()) add_line(report, "memory: " + failure.memory);
  if (!failure.backtrace.empty()) {
    add_line(report, "its stack, the innermost call first:");
    for (const std::string& frame : failure.backtrace) add_line(report, "  " + frame);
  }
  const std::deque<std::string> last = other_last_lines(failure);
  const std::string besides = last.size() < failure.last_lines.size() ? " besides that:" : ":";
  if (!last.empty()) {
    add_line(report,
             (last.size() == 1 ? "its last line" : "its last " + std::to_string(last.size()) + " lines") + besides);
    for (const std::string& line : last) report += "\n[" + std::to_string(culprit.rank) + "] " + line;
  } else if (failure.last_lines.empty()) {
    add_line(report, "it wrote no output");
  }
  if (!failure.log_folder.empty())
    add_line(report, "all of its output: stdout.log and stderr.log in " + failure.log_folder);
  for (const std::string& line : role_lines(failure, all)) add_line(report, line);
  for (const std::string& line : others_lines(failure)) add_line(report, line);
  for (const std::string& line : alarm_lines(failure)) add_line(report, line);
  if (!failure.flight.empty()) add_line(report, failure.flight);
  if (const std::string hint = hint_of(failure); !hint.empty()) add_line(report, "hint: " + hint);
  return report;
}

std::string elsewhere_report(const Failure& failure, const std::vector<WorkerEnd>& all) {
  std::string report = "[tutti] the ranks of this node (" + failure.host + "):";
  for (const std::string& line : role_lines(failure, all)) add_line(report, line);
  for (const std::string& line : others_lines(failure)) add_line(report, line);
  for (const std::string& line : alarm_lines(failure)) add_line(report, line);
  return report;
}

std::string flight_line(const std::string& folder, std::chrono::system_clock::time_point started) {
  const std::vector<int> ranks = trace::ranks_with_flight_files(folder, started);
  if (ranks.empty()) return {};
  return "flight record" + std::string(ranks.size() == 1 ? "" : "s") + " of " + ranks_words(ranks) + ": tutti flight " +
         folder + " shows which rank waited for which";
}

}  // namespace tutti::launch
